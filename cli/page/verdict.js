/* verdict.js: the first lines of each page: what ran, on what, and how it ended, in one form: a word and a sentence. */
const WRITES = ['consolidate', 'reshard', 'average'].includes(report.command);

/* "1 error: message.", "1 error, 2 warnings. First error: message." */
function problems() {
    const count = severity => report.findings.filter(one => one.severity === severity).length, c = report.counts;
    const errors = c.errors ?? count('error'), warnings = c.warnings ?? count('warning'), first = report.findings.find(one => one.severity !== 'note');
    const found = first?.found && report.source.format === undefined ? ` Found: ${first.found.replace(/^1 file is missing: /, '')}.` : ''; // the message says it
    const numbers = [[errors, 'error'], [warnings, 'warning']].filter(([n]) => n > 0).map(([n, word]) => plural(n, word)).join(', ');
    const at = report.source.format === undefined ? first?.path || first?.tensor : first?.tensor || first?.path, message = first === undefined ? '' : first.message + (at && !first.message.includes("'") ? ` ('${at}')` : '');
    const alone = errors === 1 || (errors === 0 && warnings === 1); // of its severity
    return {errors, warnings, text: numbers === '' ? '' : errors + warnings === 1 ? `${sentence(`${numbers}: ${message}`)}${found}` : `${numbers}. ${sentence(`${alone ? '' : 'first '}${first?.severity}: ${message}`)}${found}`};
}

const sentence = text => text === '' ? '' : text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? '' : '.');

/* The value of an option of the command line; undefined: not given. */
function given(name) {
    const all = report.arguments || [], at = all.findIndex(word => word === name || word.startsWith(name + '='));
    return at < 0 ? undefined : all[at] === name ? all[at + 1] ?? '' : all[at].slice(name.length + 1);
}

/* The run ended before it looked at the checkpoint. */
const isUsage = () => report.error.status === 'usage';

function failed() {
    if (isUsage())
        return ['warning', 'Not run', `${sentence(report.error.message)} The checkpoint was not examined.`];
    const e = report.error, path = e.path && !e.message.includes(e.path) ? `'${e.path}': ` : '', side = report.failed_side;
    return ['error', 'Failed', `${side ? `${side} could not be read: ` : ''}${path}${e.message}.${e.found ? ` Found: ${e.found}.` : ''}${WRITES ? ' No output was written.' : report.command === 'diff' ? ' There is no result of the comparison.' : ''}`];
}

/* Errors of verify that leave the model as it is: it can be saved. */
function spared() {
    const parts = [...new Set(report.findings.filter(one => one.severity === 'error').map(one => one.part))];
    return report.next.length > 0 && parts.every(one => one !== undefined && one !== 'model') ? ` The model has no error at level ${report.level}: it can be saved without the ${parts.join(' and the ')}, see Next.` : '';
}

/* Of verify --like. */
function nearText() {
    const n = report.nearness, all = report.near_tensors || [], far = all.filter(t => t.far).length, grown = all.filter(t => t.state === 'grown').length, scaled = all.filter(t => t.state === 'scaled').length;
    if (n === undefined || n.skipped)
        return n === undefined ? '' : ` The values were not compared with ${report.like}.`;
    return ` Compared with ${report.like}: ${number(n.judged)} of ${plural(n.tensors, 'tensor')} judged, ${number(far)} far${grown > 0 ? `; the norm of ${plural(grown, 'tensor')} grew` : ''}${scaled > 0 ? `; ${plural(scaled, 'tensor')} scaled` : ''}.`;
}

function verified() {
    const p = problems(), c = report.counts, u = report.unchecked, notes = c.notes > 0 ? ` ${plural(c.notes, 'note')}: see Findings.` : '', on = `at level ${report.level}`;
    const size = `${plural(c.tensors, 'tensor')}, ${bytes(c.tensor_bytes)}`, near = nearText();
    if (p.errors > 0)
        return ['error', 'Errors', p.text + spared() + near];
    if (p.warnings > 0)
        return ['warning', 'Warnings', `${p.text} No error ${on}.${near}${notes}`];
    if (report.verdict === 'unfinished')
        return ['warning', 'Unfinished', `No error ${on} in the ${bytes(c.bytes_read)} that were read, of ${bytes(c.bytes)} of stored data. The rest was skipped: ${report.out_of_time ? 'the time ended' : 'the check was a sample'}.${notes}`];
    return ['good', 'Passed', `No error in ${size} ${on}${c.bytes_read === 0 && !report.nearness ? '; the values were not read' : ''}.${u.tensors > 0 ? ` ${plural(u.tensors, 'tensor')} without a checksum.` : ''}${near}${notes}`];
}

/* "3 tensors only in A, in 1 layer (model.layers.1)" */
function where(rows) {
    const of = [...new Set(rows.map(d => layer(d.tensor)))].sort((a, b) => natural(a) < natural(b) ? -1 : 1);
    const word = of.every(name => /\d$/.test(name)) ? plural(of.length, 'layer') : `${number(of.length)} ${of.length === 1 ? 'module' : 'layers or modules'}`;
    return rows.length > 1 || word.includes('layer') ? `, in ${word} (${some(of)})` : '';
}

/* diff: what counts as equal. */
function tolerance() {
    const all = [['atol', take('atol')], ['rtol', take('rtol')]].filter(([, value]) => value > 0).map(([name, value]) => `--${name} ${value}`);
    return all.length > 0 ? ` Differences within the tolerance ${all.join(' and ')} do not count.` : '';
}

/* diff: what options keep out. */
function unlooked() {
    const names = ['--keys', '--exclude'].filter(name => given(name) !== undefined).map(name => `${name} ${given(name)}`), c = report.counts;
    return `${names.length > 0 ? ` Only the tensors of ${names.join(' and ')} were compared.` : ''}${given('--objects') === 'drop' ? ' Objects, such as step and learning rate, were not compared.' : ''}${c.differences > 0 && c.tensors_compared === 0 && report.stopped ? ' No values were compared.' : ''}`;
}

/* "values differ in 8 of 14 tensors (2 of them counters, such as steps), in 4 layers (...)" */
function valuesDiffer(values, c) {
    const counters = values.filter(d => d.counter).length, bad = values.filter(d => d.not_numbers > 0).length, rest = values.filter(d => !d.counter), all = report.stopped ? '' : `of ${number(c.tensors_compared)} `;
    const ofThem = counters === 0 ? '' : counters === 1 ? ` (${rest.length > 0 ? '1 of them ' : ''}a counter, such as a step)` : ` (${rest.length === 0 ? 'all' : number(counters)} of them counters, such as steps)`, isPart = rest.length > 0 && rest.length < c.tensors_compared - counters;
    return `values differ in ${number(values.length)} ${all}${values.length === 1 && all === '' || c.tensors_compared === 1 ? 'tensor' : 'tensors'}${ofThem}${isPart ? where(rest) : ''}${bad > 0 ? `; NaN or infinite numbers in ${plural(bad, 'tensor')}` : ''}`;
}

/* Which tensor has the largest relative change, of those that have one. */
function amongWhich(rows) {
    const without = rows.filter(d => d.norm_a !== undefined && typeof d.relative !== 'number');
    return without.length === 0 ? 'tensor' : `of the tensors ${without.every(d => d.norm_a === 0) ? 'that are not zero in A' : 'with finite numbers'}`;
}

/* How far the model changed as a whole, and its most changed tensor; likewise the optimizer and the rest. Counters do not count. Without
 * any such number, the largest difference. */
function farthest(values) {
    const most = (rows, key) => rows.reduce((a, b) => (b[key] ?? 0) > (a[key] ?? 0) ? b : a, {}), weights = values.filter(d => !d.counter), far = most(weights, 'largest'), all = [];
    for (const p of report.part_totals ?? []) {
        const rows = weights.filter(d => d.part === p.part), tensor = most(rows, 'relative'), part = report.part_totals.length > 1 ? `${p.part} ` : '';
        const whole = p.relative > 0 ? `${changeText(p.relative)} as a whole` : 'as a whole not known, as some numbers are not finite';
        if (tensor.relative > 0)
            all.push(p.tensors === 1 ? `${part}${changeText(tensor.relative)} ('${tensor.tensor}')` : `${part}${whole}, at most ${changeText(tensor.relative)} in one ${amongWhich(rows)} ('${tensor.tensor}')`);
    }
    return all.length > 0 ? [`relative change: ${all.join('; ')}`] : far.largest > 0 ? [`largest difference${values.some(d => d.not_numbers > 0) ? ' of the tensors with finite numbers' : ''}: ${figure(far.largest)} ('${far.tensor}')`] : [];
}

function compared() {
    const c = report.counts, p = problems(), all = report.differences || [], of = finding => all.filter(d => d.finding === finding && d.tensor);
    const values = of('DIFF-VALUES'), objects = all.filter(d => d.object !== undefined).length, parts = [];
    for (const [finding, text] of [['DIFF-TYPE', 'with another dtype or shape'], ['DIFF-ONLY-A', 'only in A'], ['DIFF-ONLY-B', 'only in B']])
        if (of(finding).length > 0)
            parts.push(`${plural(of(finding).length, 'tensor')} ${text}${where(of(finding))}`);
    const isSame = parts.length === 0 && !report.stopped && c.tensors_compared > 0 ? `same names${given('--as') ? ' and shapes' : ', shapes and dtypes'}${values.length === 0 && objects > 0 ? '; the values of all tensors are equal' : ''}` : '';
    if (values.length > 0)
        parts.push(`${isSame ? isSame + '; ' : ''}${valuesDiffer(values, c)}`, ...farthest(values));
    else if (isSame && c.differences > 0)
        parts.push(isSame);
    if (objects > 0)
        parts.push(`differences in ${plural(objects, 'object')}`);
    const warned = p.warnings > 0 ? ` ${plural(p.warnings, 'warning')}${c.differences > 0 ? '.' : `: ${sentence(report.findings.find(one => one.severity === 'warning')?.message ?? '')}`}` : '', size = `${plural(c.tensors_compared, 'tensor')} (${bytes(c.bytes_compared)})`;
    const cast = given('--as'), scope = `${report.part && report.part !== 'all' ? ` Only the ${report.part} parts were compared.` : ''}${cast ? ` A was cast to ${cast} for this.` : ''}${tolerance()}${unlooked()}`;
    if (c.differences > 0)
        return ['difference', 'Different', `${parts.map(sentence).join(' ')}${values.length === 0 && c.tensors_compared > 0 && !isSame && !report.stopped ? ` The values of the ${plural(c.tensors_compared, 'tensor')} of both are equal.` : ''}${scope}${report.stopped ? ' The comparison stopped: there may be more.' : ''}${warned}`];
    return [p.warnings > 0 ? 'warning' : 'good', 'Equal', `No difference in ${size}${c.objects_compared > 0 ? ` and ${plural(c.objects_compared, 'object')}` : ''}.${scope}${warned}`];
}

/* diff: how values were compared. */
function howCompared() {
    const c = report.counts, one = c.by_digest === 1, digests = c.by_digest > 0 ? `${plural(c.by_digest, 'compressed tensor')} ${one ? 'was' : 'were'} compared by digest` : '';
    if (report.command !== 'diff' || !(c.tensors_compared > 0))
        return null;
    const values = c.by_digest === c.tensors_compared ? digests : `every element was compared${report.stopped ? ', up to the first difference' : ''}${digests ? `; ${digests}` : ''}`;
    return make('p', {class: 'soft'}, prose(`${sentence(values)}${report.unchecked.has_checksums ? ' The checksums in the files were not: fsdpck verify --level checksum compares them.' : ''}`));
}

function averageText() {
    const a = report.average, kind = a === undefined ? '' : a.slerp !== undefined ? 'a spherical interpolation of' : a.base !== undefined ? 'task arithmetic with' : isMean(a) ? 'the mean of' : 'the weighted sum of';
    return kind === '' ? '' : `${kind} ${plural(a.inputs.length, 'checkpoint')}: `;
}

function written() {
    const c = report.counts, p = problems(), lost = c.cast_overflows > 0 ? ` ${plural(c.cast_overflows, 'value')} became infinite in the cast.` : '';
    const out = `${averageText()}${plural(c.out, 'tensor')} (${bytes(c.out_bytes)}${c.cast > 0 ? ' before the cast' : ''})${c.objects_out > 0 ? ` and ${plural(c.objects_out, 'object')}` : ''}, in ${bytes(c.bytes_written)} of files`;
    const cast = c.cast > 0 && lost === '' && !report.dry_run ? ` ${plural(c.cast, 'tensor')} cast${given('--dtype') ? ` (${given('--dtype')})` : ''}, no value became infinite.` : '';
    const chosen = ['--part', '--keys', '--exclude'].some(name => given(name) !== undefined), all = !chosen && ['hf', 'safetensors', 'hdf5'].includes(report.format) ? '; --part all includes every tensor, a .pt file everything' : '';
    const left = c.left_out + c.left_out_objects > 0 ? ` Left out: ${[[c.left_out, 'tensor'], [c.left_out_objects, 'object']].filter(([n]) => n > 0).map(([n, word]) => plural(n, word)).join(' and ')}${all}.` : '';
    const warned = p.warnings > 0 ? ` ${p.text}` : '', noted = report.remarks?.length > 0 ? ` ${plural(report.remarks.length, 'note')}: see Notes of the run.` : '';
    if (report.dry_run)
        return [warned ? 'warning' : 'note', 'Plan', `Nothing was written. The run would write ${out}.${left}${warned}${noted}`];
    return [lost || warned ? 'warning' : 'good', lost || warned ? 'Written, with warnings' : 'Written', `${sentence(out)}${cast}${lost}${left}${warned}${noted}`];
}

/* Of layout, where a quarter or more is padding. */
function padded() {
    const padding = report.counts.padding_bytes ?? 0, all = (report.rank_nbytes?.sum ?? 0) + padding;
    return padding >= all / 4 && padding > 0 ? `Padding is ${percent(padding, all)} of the memory. ` : '';
}

function predicted() {
    const k = report.rank_nbytes, p = problems(), same = k.min === k.max, n = plural(report.world_size, 'rank');
    const part = given('--part') === undefined || given('--part') === 'all' ? '' : `of the ${given('--part')} part, `;
    const held = part + (same ? `each of ${n} holds ${bytes(k.max)}` : `each of ${n} holds ${bytes(k.min)} to ${bytes(k.max)}, the largest ${k.imbalance.toFixed(3)} times the mean`);
    return [p.warnings > 0 ? 'warning' : 'note', 'Prediction', `${sentence(held)} ${padded()}Nothing was written.${p.warnings > 0 ? ` ${p.text}` : ''}`];
}

function listed() {
    const c = report.counts, p = problems();
    const size = c.tensors === undefined ? '' : `${plural(c.tensors, 'tensor')} (${bytes(c.bytes)})${c.objects > 0 ? ` and ${plural(c.objects, 'object')}` : ''}, in ${plural(c.files, 'file')}${c.file_bytes > 0 ? ` (${bytes(c.file_bytes)})` : ''}. `;
    const m = report.parts?.model, model = m?.tensors > 0 && m.bytes < c.bytes ? `Of the model: ${plural(m.elements, 'element')}, ${bytes(m.bytes)}. ` : '';
    return [p.warnings > 0 ? 'warning' : 'note', p.warnings > 0 ? 'Contents, with warnings' : 'Contents', `${size}${model}Nothing was checked: fsdpck verify does that.${p.warnings > 0 ? ` ${p.text}` : ''}`];
}

function verdict() {
    if (report.error.message)
        return failed();
    const of = {verify: verified, diff: compared, layout: predicted, inspect: listed};
    return (of[report.command] || written)();
}

/* What the page is about. */
function subject() {
    const soft = text => make('span', {class: 'soft'}, text), from = take('source').path || '', to = take('destination'), against = take('against');
    if (report.command === 'average' && report.average)
        return [soft('average of '), plural(report.average.inputs.length, 'checkpoint'), to ? soft(' to ') : null, to ? parted(to) : null];
    if (against || report.command === 'diff')
        return [soft('A: '), parted(from), soft(' against B: '), parted(against || to || '')];
    return [parted(from), to ? soft(' to ') : null, to ? parted(to) : null];
}

function heading(parts) {
    const inside = parts.filter(part => part !== null);
    return make('h1', {'aria-label': inside.map(part => part.textContent ?? part).join('')}, ...inside);
}

/* As a shell reads it. */
const quoted = word => word.includes('\\x') ? `$'${word.replaceAll("'", "\\'")}'` : /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;

/* A format or mesh of the output; a failed run may have none. */
const termIfAny = value => value ? term(value) : undefined;

function header() {
    const s = report.source, [kind, word, text] = verdict(), run = take('arguments');
    document.title = `${word}: fsdpck ${report.command} ${s.path || ''}`;
    document.getElementById('page').append(make('header', {},
        make('p', {class: 'command'}, `fsdpck ${report.command}`), heading(subject()),
        make('p', {class: `verdict ${kind}`}, make('strong', {}, word), ': ', prose(text)),
        run ? make('p', {class: 'run'}, 'Command: ', make('code', {}, parted(['fsdpck', ...run.map(quoted)].join(' ')))) : null,
        sides(), howCompared(),
        facts([...sourceFacts(), ['part', take('part')], ['output format', WRITES ? termIfAny(take('format')) : undefined], ['output mesh', termIfAny(take('mesh'))], ['output ranks', take('world_size')],
               ['level', take('level')], ['exit status', report.error.status ? `${report.exit_code} (${report.error.status})` : String(report.exit_code)], ['run on', report.time],
               ['run time', report.seconds < 0.1 ? `${Math.max(1, Math.round(report.seconds * 1000))} ms` : `${report.seconds.toFixed(2)} s`]])));
}

/* Of inspect, a section has all of them. */
if (report.command !== 'inspect')
    ['steps', 'against_steps'].forEach(take);

const TERM_KEYS = ['format', 'mesh'];

/* The training step with its record, the most reliable one; then those that differ from it. */
function stepText(source, steps = []) {
    const all = steps.length > 0 ? steps : source.step === undefined ? [] : [{step: source.step, source: source.step_source}];
    const first = all.filter((one, at) => all.findIndex(other => other.step === one.step) === at), text = one => `${one.step}${one.source ? ` (${one.source})` : ''}`;
    return all.length === 0 ? undefined : text(first[0]) + (first.length > 1 ? `; other records: ${first.slice(1).map(text).join(', ')}` : '');
}

/* [label, value] of a source. */
function factsOf(source, steps) {
    const rest = Object.entries(source).filter(([key]) => !['path', 'step', 'step_source'].includes(key)), step = stepText(source, steps);
    return [...rest.map(([key, value]) => [key, TERM_KEYS.includes(key) ? term(value) : typeof value === 'number' ? number(value) : String(value)]), ...(step === undefined ? [] : [['step', prose(step)]])];
}

function sourceFacts() {
    const label = key => WRITES || report.command === 'layout' ? `source ${words(key)}` : report.command === 'diff' ? `${words(key)} of A` : words(key);
    return report.against ? [] : factsOf(report.source, report.steps).map(([key, value]) => [label(key), value]);
}

/* diff that failed: what was done on this side. */
function resultOf(name, source) {
    if (!report.error.message)
        return [];
    return [['result', report.failed_side === name ? make('strong', {class: 'error'}, 'could not be read') : source.format === undefined ? 'not opened' : 'opened']];
}

/* diff: A and B, one beside the other. */
function sides() {
    const b = take('against_source') ?? {path: report.against}, failed = take('failed_side');
    if (b.path === undefined || report.source.path === undefined)
        return null;
    const all = [['A', report.source, report.steps], ['B', b, report.against_steps]].map(([name, one, steps]) => new Map([['path', parted(one.path)], ...resultOf(name, one), ...factsOf(one, steps)]));
    const keys = [...new Set(all.flatMap(one => [...one.keys()]))];
    return make('table', {class: 'sides', 'aria-label': 'A and B'}, make('thead', {}, make('tr', {}, make('td', {}), make('th', {scope: 'col'}, 'A'), make('th', {scope: 'col'}, 'B'))),
        make('tbody', {}, ...keys.map(key => make('tr', {}, make('th', {scope: 'row'}, make('span', {title: explained(words(key))}, words(key))), ...all.map(one => make('td', {}, one.get(key) ?? (failed ? '' : 'unknown')))))));
}
