/* tensors.js: parts, dtypes and tensors. */

/* The pieces of a tensor of one or two dims that differ from the whole, as a grid. */
function cuts(t) {
    const width = 72, height = 28, divided = t.shape.map((n, d) => n > 0 && t.first_piece[d] > 0 ? Math.ceil(n / t.first_piece[d]) : 1);
    const rows = divided[0] || 1, columns = divided.slice(1).reduce((all, n) => all * n, 1), rects = [];
    for (let y = 0; y < Math.min(rows, 14); y++)
        for (let x = 0; x < Math.min(columns, 36); x++)
            rects.push([x * (width - 1) / Math.min(columns, 36) + .5, y * (height - 1) / Math.min(rows, 14) + .5, (width - 1) / Math.min(columns, 36), (height - 1) / Math.min(rows, 14), 'cell']);
    return svg(width, height, rects);
}

function histogram(t) {
    const most = Math.max(...t.exponents, 1), height = 28, step = Math.min(4, 112 / (t.exponents.length || 1));
    return svg(step * t.exponents.length, height, t.exponents.map((n, at) => [step * at, height - height * n / most, .75 * step, height * n / most]));
}

const elements = t => t.shape.reduce((all, n) => all * n, 1);
/* Of a sample, or after --max-duration: a tensor may have no elements that were read. */
const isUnread = t => t.looked_at === 0 && elements(t) > 0;
const unlessUnread = text => t => isUnread(t) ? '' : text(t);

const STATISTICS = [
    {title: 'mean', cell: t => figure(t.mean), key: t => t.mean ?? -Infinity, number: true},
    {title: 'std', cell: t => t.variance === undefined ? '' : figure(Math.sqrt(t.variance)), key: t => t.variance, number: true},
    {title: 'min', cell: t => figure(t.min), key: t => t.min, number: true}, {title: 'max', cell: t => figure(t.max), key: t => t.max, number: true},
    {title: 'NaN', cell: unlessUnread(t => number(t.nan)), key: t => t.nan, number: true, isOmitted: t => t.nan === 0}, {title: 'infinite', cell: unlessUnread(t => number(t.inf)), key: t => t.inf, number: true, isOmitted: t => t.inf === 0},
    {title: 'zeros', cell: unlessUnread(t => percent(t.zeros, t.looked_at)), key: t => t.zeros / (t.looked_at || 1), number: true},
    {title: 'powers of two', cell: t => t.exponents === undefined ? '' : make('div', {class: 'beside'}, histogram(t), make('span', {class: 'soft'}, t.exponents.length > 0 ? `2^${t.exponent_least} to 2^${t.exponent_least + t.exponents.length}` : '')), wide: true}];

function tensors() {
    const every = take('tensors'), statistics = take('statistics'), largest = take('largest'), all = every || statistics || largest || [], most = all.reduce((n, t) => Math.max(n, t.bytes || 0), 0);
    if (all.length === 0)
        return;
    const has = key => all.some(t => t[key] !== undefined), columns = [
        {...named('name', t => t.name), first: Boolean(every || statistics)}, {title: 'dtype', cell: t => t.dtype, key: t => t.dtype},
        {title: 'shape', cell: t => shape(t.shape), nowrap: true}];
    if (has('part'))
        columns.push({title: 'part', cell: t => t.part, key: t => t.part});
    if (has('bytes'))
        columns.push({title: 'bytes', cell: t => bytes(t.bytes), key: t => t.bytes, number: true}, {title: '', cell: t => bar(t.bytes, most), bar: true, spare: has('first_piece')});
    if (has('layout') || has('placements')) {
        new Set(all.map(t => t.layout || t.placements)).forEach(termsOf);
        columns.push({title: 'layout', cell: t => t.layout || t.placements, key: t => t.layout || t.placements});
    }
    if (has('chunks'))
        columns.push(counted('chunks', t => t.chunks));
    if (has('first_piece'))
        columns.push({title: 'first shard', cell: t => shape(t.first_piece), nowrap: true}, {title: 'picture of the shards', cell: cuts, minor: true}, counted('shards', t => t.pieces), counted('empty shards', t => t.empty_pieces));
    if (has('tied_to'))
        columns.push({title: 'same as', cell: t => t.tied_to ? parted(t.tied_to) : '', wide: true});
    if (has('looked_at'))
        columns.push(...(all.some(t => t.looked_at < elements(t)) ? [{title: 'read', cell: t => isUnread(t) ? 'not read' : percent(t.looked_at, elements(t)), key: t => t.looked_at / (elements(t) || 1), number: true}] : []), ...STATISTICS.filter(one => !one.isOmitted || !all.every(one.isOmitted)));
    const none = has('looked_at') ? STATISTICS.filter(one => one.isOmitted && all.every(one.isOmitted)).map(one => one.title) : [];
    table(every || statistics ? 'Tensors' : 'Largest tensors', all, columns, {before: none.length > 0 ? [make('p', {class: 'soft'}, `No tensor has ${none.join(' or ')} numbers${all.some(t => t.looked_at < elements(t)) ? ' in what was read' : ''}.`)] : []});
}

/* inspect: what is in the checkpoint. */
function contents() {
    const parts = take('parts'), dtypes = take('dtypes'), rule = take('part_rule'), key = take('model_key');
    if (parts !== undefined)
        shares('Parts', Object.entries(parts).map(([name, part]) => ({name, ...part})), rule ? make('p', {class: 'soft'}, sentence(rule)) : null);
    if (dtypes !== undefined)
        shares('Dtypes', Object.entries(dtypes).map(([name, part]) => ({name, ...part})));
    if (parts === undefined && rule)
        section('Parts of the source', make('p', {}, sentence(rule)), key ? facts([['model key', key], ['names in the output', `${key}.NAME \u2192 NAME`]]) : null);
}
