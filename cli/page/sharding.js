/* sharding.js: what each rank holds: inspect, layout, reshard. */

/* Columns of all ranks, from 0; of several ranks, the largest. */
function columns(all, most) {
    const size = Math.ceil(all.length / 256), heights = [];
    for (let at = 0; at < all.length; at += size)
        heights.push(Math.max(...all.slice(at, at + size)));
    return make('div', {class: 'columns', 'aria-hidden': 'true'}, ...heights.map(n => make('b', {style: `height:${most > 0 ? 100 * n / most : 0}%`})));
}

function balance() {
    const k = take('rank_nbytes'), c = report.counts, at = (n, rank) => bytes(n) + (rank === undefined ? '' : ` (first: rank ${rank})`), padding = k?.sum === undefined ? undefined : c.padding_bytes;
    if (k === undefined)
        return null;
    if (padding !== undefined)
        explained('padding');
    return facts([['least', at(k.min, k.min_rank)], ['most', at(k.max, k.max_rank)], ['mean', k.mean === undefined ? '' : bytes(k.mean)],
                  ['largest / mean', k.imbalance === undefined ? '' : k.imbalance.toFixed(3)], ['total of all ranks', k.sum === undefined ? '' : bytes(k.sum)],
                  ['padding of all ranks, besides', padding === undefined ? '' : `${bytes(padding)} (${percent(padding, k.sum + padding)} of their memory)`]]);
}

/* inspect counts what the files of a rank store, the others what a rank holds. */
const RANKS = report.command === 'inspect' ? ['Bytes of tensors in the files of each rank', 'A tensor that several ranks hold counts where it is stored: often on one of them.']
    : ['Bytes of tensors that each rank holds', `Content after loading${report.counts?.padding_bytes > 0 ? ', without padding' : ''}. A replicated tensor counts on each rank that holds it.`];

function ranks() {
    const [title, meaning] = RANKS, explains = make('p', {class: 'soft'}, meaning);
    const all = take('bytes_per_rank') || [], most = all.reduce((a, b) => Math.max(a, b), 0), least = balance();
    const advice = padded() === '' ? null : make('p', {}, prose('The shards are small: sharding each tensor over fewer ranks reduces the padding, for example with --mesh dp_replicate=R,dp_shard=S.'));
    if (all.length === 0 && least !== null)
        section(title, explains, least, advice);
    if (all.length > 16)
        section('Balance', explains, columns(all, most), make('div', {class: 'ends soft'}, make('span', {}, 'rank 0'), make('span', {}, `tallest: ${bytes(most)}`), make('span', {}, `rank ${number(all.length - 1)}`)), least, advice);
    if (all.length > 0)
        table(title, all.map((n, rank) => ({rank, n, name: String(rank)})), [
            {title: 'rank', cell: r => String(r.rank), key: r => r.rank, number: true},
            {title: 'bytes', cell: r => bytes(r.n), key: r => r.n, number: true},
            {title: fullAt(bytes(most)), cell: r => bar(r.n, most), bar: true}], {first: all.length > 16 ? 8 : ROWS, before: all.length > 16 ? [] : [explains, least, advice].filter(Boolean)});
}

/* layout: what a GPU needs, and on which assumptions. */
function training() {
    const t = take('training_nbytes');
    if (t === undefined)
        return;
    const all = t.parameters + t.gradients + t.adam, most = report.rank_nbytes?.max, lines = [
        ...(report.units === undefined && t.gradients > 0 && most >= t.parameters ? [t.assumed || most < t.parameters + t.adam ? `The rank that holds most has ${bytes(most)} of what was laid out, the parameters included. Gradients and optimizer state come on top.`
            : `The rank that holds most has ${bytes(most)} of the checkpoint: parameters, optimizer state and the rest. The total adds ${bytes(t.gradients)} of gradients, and omits what is neither, such as step counters.`] : []),
        t.assumed ? 'Assumed: the optimizer is Adam, with two moments in the dtype of the parameters.' : 'The optimizer state is that of the source. A tensor without it counts as a buffer or frozen parameter, without gradients.',
        `Assumed: gradients have the dtype and the sharding of the parameters.${report.units === undefined && report.counts.padding_bytes > 0 ? ' Both include padding.' : ''}`,
        'Not included: activations, temporary buffers, and memory of CUDA and NCCL.'];
    shares('Memory of the fullest GPU in training, without activations', [{name: 'parameters', bytes: t.parameters}, {name: 'gradients', bytes: t.gradients}, {name: 'optimizer state', bytes: t.adam}],
           facts([['total', bytes(all)], ['in CPU memory', t.cpu > 0 ? bytes(t.cpu) : ''], ['largest gathered unit', t.largest_gather > 0 ? bytes(t.largest_gather) : '']]), list(lines));
}

const IN_UNITS = ['module', 'class', 'sharding', 'strategy', 'dtype', 'gather_dtype', 'reduce_dtype', 'world_size', 'params', 'shared', 'elements', 'shard_bytes', 'padding_bytes', 'gather_bytes'];

function unitDetails(all) {
    const rest = all.map(u => Object.fromEntries(Object.entries(u).filter(([key]) => key === 'module' || !IN_UNITS.includes(key)))), label = u => u.module || '(the whole model)';
    const params = all.flatMap(u => u.params.map(p => ({...p, unit: label(u)})));
    if (rest.some(u => Object.keys(u).length > 1))
        table('More of the units', rest, [named('module', label), ...members(rest, 'module')]);
    if (params.length > 0)
        table('Parameters of the units', params, [named('name', p => p.name), ...members(params, 'name')], {first: 12});
    names('Parameters with several names', all.flatMap(u => u.shared.map(one => `${one.name} = ${one.same_as}`)), 'name = parameter');
}

/* layout of a model description: the units of FSDP. */
function units() {
    const all = take('units') || [], kind = take('sharding'), whole = take('whole') || [];
    if (all.length > 0)
        table(`Units (${kind})`, all, [
            named('module', u => u.module || '(the whole model)'), ...(all.some(u => u.class) ? [{title: 'class', cell: u => u.class, key: u => u.class}] : []), {title: 'sharding', cell: u => `${u.sharding}${u.strategy ? `, ${u.strategy}` : ''}`, key: u => u.sharding},
            {title: 'dtype', cell: u => `${u.dtype || ''}${u.gather_dtype && u.gather_dtype !== u.dtype ? `, gathered as ${u.gather_dtype}` : ''}${u.reduce_dtype && u.reduce_dtype !== u.dtype ? `, reduced as ${u.reduce_dtype}` : ''}`},
            counted('ranks', u => u.world_size), counted('parameters', u => u.params.length), counted('elements', u => u.elements), counted('bytes of a shard', u => u.shard_bytes, bytes),
            counted('padding', u => u.padding_bytes, bytes), counted('bytes gathered', u => u.gather_bytes, bytes)]);
    unitDetails(all);
    if (whole.length > 0)
        table('Parameters in no unit', whole, [named('name', t => t.name), {title: 'dtype', cell: t => t.dtype, key: t => t.dtype}, {title: 'shape', cell: t => shape(t.shape), nowrap: true},
            counted('bytes', t => t.bytes, bytes), {title: 'ignored', cell: t => t.ignored ? 'yes' : 'no'}]);
}

/* Columns of what the rows have, except one. */
function members(rows, except) {
    return [...new Set(rows.flatMap(p => Object.keys(p)))].filter(key => key !== except).map(key => ({
        title: words(key), cell: p => p[key] === undefined ? '' : plain(key, p[key]), key: typeof rows[0][key] === 'number' ? p => p[key] ?? -1 : undefined, number: typeof rows[0][key] === 'number'}));
}

/* layout --rank: the pieces of each rank. */
function pieces() {
    for (const r of take('ranks') || []) {
        const inside = (r.units || []).map(({pieces: ignored, ...rest}) => rest), rows = r.pieces || (r.units || []).flatMap(u => u.pieces);
        if (inside.length > 0)
            table(`Units of rank ${r.rank}`, inside, [named('module', u => u.module || '(the whole model)'), ...members(inside, 'module')]);
        table(`Rank ${r.rank}`, rows, [named('name', p => p.name), ...members(rows, 'name')], {before: [facts([['bytes', bytes(r.bytes)], ['padding', r.padding_bytes === undefined ? '' : bytes(r.padding_bytes)],
            ['empty shards', r.empty_pieces === undefined ? '' : number(r.empty_pieces)]])]});
    }
}
