/* sizes.js: the figures in bytes, which differ by what they count, each with its meaning; and the other counts. */
const isBytes = key => key.includes('bytes') || key === 'memory';
const counted2 = entries => facts(entries.map(([key, n]) => [words(key), isBytes(key) ? bytes(n) : number(n)]));

/* By command: [member of counts, label, meaning]. Those without a value are omitted. */
const SIZES = {
    inspect: [['bytes', 'tensors', 'each counted once, as if it were whole'],
        ['file_bytes', 'files with tensors', 'on disk, besides the tensors: REST']],
    verify: [['tensor_bytes', 'tensors', 'each counted once, as if it were whole'],
        ['bytes', 'stored data', 'the contents that this level checks: STORED'],
        ['file_bytes', 'files with tensors', 'on disk: the stored data and what surrounds it'],
        ['bytes_read', 'bytes read', 'part of the stored data that was read; headers and directories are not counted'],
        ['bytes_summed', 'bytes compared with checksums', 'part of the bytes read for which the files record a checksum']],
    diff: [['bytes_compared', 'tensors compared', 'each counted once, in the dtype of A'],
        ['bytes_read', 'bytes read', 'from A and B together; small pieces are read with the bytes between them, so this can exceed twice the tensors']],
    layout: [['bytes', 'tensors', 'each counted once, as if it were whole'], ['padding_bytes', 'padding', 'on all ranks together: memory without content, which makes shards of parameters equally large'],
        ['tied_bytes', 'tied names', 'further names of tensors that are counted already']],
    write: [['in_bytes', 'tensors in the source', 'each counted once, as if it were whole'], ['left_out_bytes', 'left out', 'part of them that is not in the output'],
        ['tied_dropped_bytes', 'tied names omitted', 'further names of tensors that are in the output'], ['out_bytes', 'tensors in the output', 'each counted once'],
        ['bytes_written', 'output files', 'the tensors and the rest'],
        ['bytes_read', 'bytes read', 'from the files of the source; small pieces are read with the bytes between them, so this can exceed the tensors']]};

/* What files have besides each tensor counted once. */
function restOfFiles(format, objects, ranks) {
    const headers = format === 'dcp' ? 'headers and alignment of each shard, which is a small archive of its own (1 kB and more)' : 'headers and alignment', all = [headers];
    if (objects > 0)
        all.push('objects');
    if (WRITES && ['dcp', 'dcp-safetensors'].includes(format))
        all.push('metadata');
    if (ranks > 1 && !['dcp', 'dcp-safetensors'].includes(format))
        all.push('further copies of tensors that several ranks store');
    return some(all);
}

/* Of the bytes that a level checks: an archive has entries without tensors. */
function storedText() {
    const format = report.source.format;
    return ['safetensors', 'hf', 'hdf5'].includes(format) ? 'tensors' : format === 'dcp' ? 'tensors, and from level checksum on objects and the other entries of the archive of each shard'
        : 'tensors with their further copies, and from level checksum on objects';
}

/* The members that it has shown. */
function sizes(c) {
    const all = (SIZES[WRITES ? 'write' : report.command] || []).filter(([key]) => c[key] !== undefined && (c[key] > 0 || key === 'bytes_read'));
    const one = (key, label, meaning) => [label, make('span', {}, make('strong', {}, bytes(c[key])), make('span', {class: 'soft'}, `: ${meaningOf(key, meaning)}`))];
    const pairs = all.flatMap(row => [one(...row), ...(row[0] === 'bytes_written' ? restOf(c) : row[0] === 'file_bytes' ? surroundings(c) : [])]);
    if (all.length > 0)
        section('Sizes', make('dl', {class: 'sizes'}, ...pairs.map(([label, value]) => make('div', {}, make('dt', {}, label), make('dd', {}, value)))));
    return all.map(([key]) => key);
}

/* What the output files have besides the tensors; after a cast, the bytes of the tensors are not known. */
function restOf(c) {
    const rest = (c.bytes_written ?? 0) - (c.out_bytes ?? 0), text = `output files without the tensors counted once: ${restOfFiles(report.format, c.objects_out, report.world_size)}`;
    return WRITES && rest > 0 && !(c.cast > 0) ? [['rest of the output files', make('span', {}, make('strong', {}, bytes(rest)), make('span', {class: 'soft'}, `: ${text}`))]] : [];
}

/* verify: why the files are larger than what was checked. */
function surroundings(c) {
    const rest = c.file_bytes - c.bytes, text = 'headers, directories and padding, and contents that this level does not check; none of it is counted as read';
    return report.command === 'verify' && rest > 0 ? [['files without the stored data', make('span', {}, make('strong', {}, bytes(rest)), make('span', {class: 'soft'}, `: ${text}`))]] : [];
}

/* A plan has not read or written. */
function meaningOf(key, meaning) {
    const c = report.counts, planned = report.dry_run && ['bytes_read', 'bytes_written'].includes(key) ? 'planned; ' : '', cast = key === 'out_bytes' && c.cast > 0 ? ', before the cast' : '';
    meaning = meaning.replace('REST', restOfFiles(report.source.format, c.objects, report.source.world_size)).replace('STORED', storedText());
    return `${planned}${report.command === 'average' && key === 'bytes_read' ? meaning.replace('the source', 'all inputs') : meaning}${cast}`;
}

/* Labels that depend on the report. */
function counts() {
    const c = take('counts'), isOpen = report.source.format !== undefined || report.command !== 'verify', done = isOpen ? sizes(c) : [], entries = Object.entries(c).filter(([key, n]) => !done.includes(key) && typeof n === 'number' && (n > 0 || (WRITES && key === 'left_out')));
    LABELS.left_out = WRITES ? 'tensors left out' : 'other data';
    if (entries.length > 0 && isOpen)
        section('Counts', counted2(entries));
}
