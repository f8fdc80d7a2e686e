/* layers.js: diff: layers and tensors that differ. */

/* "model.layers.3" of "model.layers.3.mlp.weight"; names without a number: their first part, or themselves. */
function layer(name) {
    const found = name.match(/^(.*?\.)?\d+(?=\.|$)/);
    return found ? found[0] : name.split('.').slice(0, -1).join('.') || name;
}

const ONLY = {'DIFF-ONLY-A': 'onlyA', 'DIFF-ONLY-B': 'onlyB', 'DIFF-TYPE': 'type', 'DIFF-VALUES': 'values'};

/* Differences of the model, of the optimizer and of the rest, each part with its own tables: the changes of one are no measure for
 * those of another. [rows, words of a title] */
function byPart(rows) {
    const of = {model: ' of the model', optimizer: ' of the optimizer', other: ' of the other part'}, names = Object.keys(of).filter(part => rows.some(d => d.part === part));
    return names.length < 2 ? [[rows, '']] : names.map(part => [rows.filter(d => d.part === part), of[part]]);
}

/* Layers with tensors that differ, without counters. */
function moved(rows) {
    const found = new Map();
    for (const d of rows.filter(one => one.tensor && !one.counter)) {
        const key = layer(d.tensor), one = found.get(key) || {name: key, onlyA: 0, onlyB: 0, type: 0, values: 0, elements: 0, differing: 0, largest: 0, of: '', notNumbers: 0, squares: 0, squaresOfA: 0};
        one[ONLY[d.finding]]++;
        one.elements += d.elements || 0;
        one.differing += d.differing || 0;
        one.notNumbers += d.not_numbers || 0;
        if (d.norm_a !== undefined) {
            one.squares += d.distance === null ? NaN : d.distance ** 2;
            one.squaresOfA += d.norm_a === null ? NaN : d.norm_a ** 2;
        }
        if (d.elements && finite(d) >= one.largest) {
            one.largest = finite(d);
            one.of = d.tensor.slice(key.length).replace(/^\./, '') || d.tensor;
        }
        found.set(key, one);
    }
    return [...found.values()];
}

/* The norm of B - A over that of A, over the tensors that differ; undefined: not known, not finite, or A is zero. */
function change(squares, squaresOfA) {
    const found = Math.sqrt(squares / squaresOfA);
    return squaresOfA > 0 && Number.isFinite(found) ? found : undefined;
}

/* Of a tensor; both norms are below, to leave the width to others. */
function withNorms(d) {
    const text = changeText(d.relative ?? undefined), known = typeof d.norm_a === 'number' && typeof d.distance === 'number';
    return known ? make('span', {}, text, make('br'), `(L2 ${figure(d.distance)} / ${figure(d.norm_a)})`) : text;
}

const changeText = x => x === undefined ? '-' : `${figure(100 * x)} %`;

/* The largest difference of finite numbers. */
const finite = d => d.largest_finite ?? d.largest ?? 0;

/* Of finite numbers; those that are not are counted. */
function distance(largest, notNumbers) {
    const count = `NaN or infinite: ${number(notNumbers)}`;
    return !notNumbers ? figure(largest) : largest > 0 ? `${figure(largest)}; ${count}` : count;
}

/* Which layers differ, and how far: the largest relative change first, after those where it is not known. */
function layers() {
    partsCompared();
    for (const [rows, part] of byPart(report.differences || []))
        layersOf(rows, part);
}

/* Each part as a whole. */
function partsCompared() {
    const all = report.part_totals ?? [], counters = report.counts.tensors_compared - all.reduce((sum, p) => sum + p.tensors, 0);
    if (all.length > 0)
        table('Parts', all, [{title: 'part', cell: p => p.part, name: true}, {title: 'tensors that differ', cell: p => `${number(p.differing_tensors)} of ${number(p.tensors)}`, number: true},
            {title: 'elements that differ', cell: p => `${number(p.differing)} of ${number(p.elements)}`, number: true}, {title: 'relative change', cell: withNorms, number: true},
            {title: 'largest difference', cell: p => distance(finite(p), p.not_numbers), key: p => p.not_numbers ? Infinity : p.largest, number: true}],
            {after: counters > 0 ? [make('p', {class: 'soft'}, `${plural(counters, 'counter')}, such as the step of an optimizer, ${counters === 1 ? 'is' : 'are'} not counted here.`)] : []});
}

function layersOf(rows, part) {
    const all = moved(rows), changeOf = one => change(one.squares, one.squaresOfA), most = all.reduce((n, one) => Math.max(n, changeOf(one) ?? 0), 0), has = key => all.some(one => one[key] > 0);
    if (all.length < 2)
        return;
    const some = [['values', 'differ in values'], ['type', 'of another dtype or shape'], ['onlyA', 'only in A'], ['onlyB', 'only in B']].filter(([key]) => has(key));
    table(`Layers${part} that differ`, all, [
        {...named('layer', one => one.name), first: !has('values')},
        ...some.map(([key, title]) => ({title: some.length > 1 ? `tensors ${title}` : 'tensors that differ', cell: one => one[key] > 0 ? number(one[key]) : '', key: one => one[key], number: true})),
        ...(has('values') ? [{title: 'elements that differ', cell: one => one.elements > 0 ? percent(one.differing, one.elements) : '', key: one => one.differing / (one.elements || 1), number: true},
            {title: 'relative change', cell: one => one.elements > 0 ? changeText(changeOf(one)) : '', key: one => changeOf(one) ?? Infinity, number: true, first: true},
            {title: fullAt(changeText(most)), cell: one => changeOf(one) === undefined ? '' : bar(changeOf(one), most), bar: true},
            {title: 'largest difference', cell: one => one.elements > 0 ? distance(one.largest, one.notNumbers) : '', key: one => one.notNumbers ? Infinity : one.largest, number: true},
            {title: 'in', cell: one => parted(one.of), wide: true}] : [])],
        {after: has('values') ? [make('p', {class: 'soft'}, `The relative change of a layer is that of its tensors that differ, taken together: one of them can have a larger one.${rows.some(d => d.counter) ? ' Counters, such as steps, are not in this table.' : ''}`)] : []});
}

const side = x => x ? `${x.dtype || ''} ${x.shape ? shape(x.shape) : ''}` : '';

/* Breaks after the dtype only. */
const unbroken = text => make('span', {}, ...text.split(/ (?=\[)/).flatMap((part, at) => [at > 0 ? ' ' : '', make('span', {class: 'nowrap'}, part)]));

/* Where the first difference is, or the values of objects. */
function firstOf(d) {
    if (d.first)
        return make('span', {}, d.first.length > 0 ? `${shape(d.first)}: ` : '', make('span', {class: 'nowrap'}, shortened(d.first_a, d.first_b)));
    return d.value_a === undefined && d.value_b === undefined ? '' : `${d.value_a ?? ''} \u2192 ${d.value_b ?? ''}`;
}

/* Numbers with four digits, or as many as they need to differ. */
function shortened(a, b) {
    const isReal = text => /^-?[\d.]+(e[-+]?\d+)?$/.test(text) && !/^-?\d+$/.test(text), short = (text, digits) => isReal(text) ? figure(Number(text), digits) : text;
    const digits = [4, 5, 6, 7, 8, 9].find(n => short(a, n) !== short(b, n)) ?? 17;
    return `${short(a, digits)} \u2192 ${short(b, digits)}`;
}

/* Names of the tensors without a difference. */
function equals() {
    const all = take('equal') || [], title = 'Equal tensors';
    if (all.length > 0)
        section(title, folded(`names of ${plural(all.length, 'tensor')}`, () => tableParts(title, all.map(name => ({name})), [named('tensor', one => one.name)])));
}

/* By relative change. First: tensors that have none because they are on one side, of another type, or have NaN; last: counters, and objects. */
const order = d => !d.tensor || d.counter ? -1 : typeof d.relative === 'number' ? d.relative : Infinity;

function differences() {
    take('stopped');
    take('part_totals');
    for (const [rows, part] of byPart(take('differences') || []))
        differencesOf(rows, part);
}

function differencesOf(all, part) {
    const has = test => all.some(test), valued = has(d => d.elements), most = all.reduce((n, d) => Math.max(n, d.counter ? 0 : d.relative ?? 0), 0);
    if (all.length === 0)
        return;
    table(`Differences${part}`, all, [
        {...named('tensor or object', d => `${d.file ? `${d.file}: ` : ''}${d.tensor || d.object || d.path || ''}${d.rank === undefined ? '' : ` of rank ${d.rank}`}`), first: !valued},
        ...(has(d => d.message !== all[0].message) ? [{title: 'difference', cell: d => d.message, key: d => d.message}] : []),
        ...(has(d => d.a && d.b && side(d.a) !== side(d.b)) ? [{title: 'dtype and shape in A', cell: d => unbroken(side(d.a))}, {title: 'dtype and shape in B', cell: d => unbroken(side(d.b))}]
            : has(d => d.a || d.b) ? [{title: 'dtype and shape', cell: d => unbroken(side(d.a || d.b))}] : []),
        ...(valued ? [{title: 'elements that differ', cell: d => d.elements ? `${number(d.differing ?? 0)} of ${number(d.elements)}` : '', key: d => d.elements ? d.differing / d.elements : -1, number: true},
            {title: 'relative change', cell: d => d.elements ? withNorms(d) : '', key: order, number: true, first: true},
            {title: most > 0 ? fullAt(changeText(most)) : '', cell: d => typeof d.relative === 'number' && !d.counter ? bar(d.relative, most) : '', bar: true, spare: true},
            {title: 'largest difference', cell: d => d.largest === undefined ? '' : distance(finite(d), d.not_numbers), key: d => d.not_numbers ? Infinity : d.largest ?? -1, number: true}] : []),
        ...(has(d => firstOf(d) !== '') ? [{title: valued ? 'first difference: A \u2192 B' : 'values: A \u2192 B', cell: firstOf, wide: true}] : [])]);
}
