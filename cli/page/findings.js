/* findings.js: why a run failed, findings, next steps, and what was not tested. */
const line = (label, text) => text === undefined || text === '' ? null : make('div', {}, make('span', {class: 'soft'}, label + ' '), text);

function failure() {
    const e = take('error');
    if (e.message)
        section(isUsage() ? 'Why it did not run' : 'Why it failed', lines([['message', e.message], ['finding', e.finding], ['path', e.path && parted(e.path)], ['tensor', e.tensor && parted(e.tensor)], ['offset', e.offset === undefined ? '' : `byte ${number(e.offset)}`],
            ['expected', e.expected], ['found', e.found], ['errno', e.errno === undefined ? '' : String(e.errno)], ['kind of failure', e.status]]));
}

/* Of a failed run, the error is in a section of its own. */
const isFailure = f => Boolean(report.error.message) && f.severity === 'error' && f.message === report.error.message;

/* Names that the message counts. */
function allNames(f, key, label) {
    const all = f[key] || [];
    return all.length === 0 ? null : make('details', {}, make('summary', {}, `all names: ${plural(all.length, label)}`), list(all.slice(0, PRINTED)),
        all.length > PRINTED ? make('p', {}, `and ${number(all.length - PRINTED)} more, see --json`) : null);
}

function findings() {
    const order = ['error', 'warning', 'note'], all = take('findings').slice().sort((a, b) => order.indexOf(a.severity) - order.indexOf(b.severity)).filter(f => !isFailure(f) || f.files || f.tensors);
    if (all.length > 0)
        table('Findings', all, [
            {title: 'severity', cell: f => make('strong', {class: f.severity}, f.severity), key: f => order.indexOf(f.severity), first: true},
            {title: 'finding', cell: f => make('code', {}, f.finding), key: f => f.finding},
            {title: 'message and place', cell: f => make('div', {}, prose(f.message), line('tensor', f.tensor && parted(f.tensor)), line('file', f.path && parted(f.path)),
                line('offset', f.offset === undefined ? '' : `byte ${number(f.offset)}`), line('expected', f.expected), line('found', f.found), allNames(f, 'files', 'file'), allNames(f, 'tensors', 'tensor')), wide: true, bare: true},
            {title: 'next step', cell: f => f.next ? prose(f.next) : '', wide: true}]);
}

function next() {
    const lines = take('next');
    if (lines.length > 0)
        section('Next', /^(fsdpck|python|torch|import|from|\w+ = )/.test(lines[0]) || lines.some(one => one.includes('\n')) ? make('pre', {}, lines.join('\n')) : list(lines));
}

function untested() {
    const text = take('not_seen'), sampled = take('sampled'), stopped = take('out_of_time'), deeper = {quick: 1, structure: 1, coverage: 1, checksum: 2}[report.level];
    const isOpen = report.source.format !== undefined, on = quoted(report.source.path || '');
    const more = !isOpen ? '' : deeper === 1 ? `fsdpck verify --level checksum ${on} reads all bytes and compares their checksums.` : deeper === 2 ? `fsdpck verify --level numeric ${on} also looks for NaN.` : '';
    if (text)
        section('Not tested', isOpen ? make('p', {}, `${sampled || stopped ? 'Only a part was read. ' : ''}This check cannot detect:`) : null, isOpen ? list(text.split('; ')) : make('p', {}, sentence(text)), more ? make('p', {}, prose(more)) : null);
}

function unchecked() {
    const all = Object.entries(take('unchecked')).filter(([, n]) => n !== true && n > 0), entries = WRITES ? [] : all;
    if (all.length > 0)
        section('Not compared with a checksum', make('p', {}, prose(WRITES ? `This command does not compare the source with its checksums. fsdpck verify --level checksum ${quoted(report.source.path || 'SRC')} does${report.command === 'average' ? ', and likewise for each other input' : ''}.` : report.command === 'verify' && report.unchecked.tensors > 0 ?
            'These tensors have no recorded checksum: a flipped bit in them is not noticed.' : '')), counted2(entries));
}

const isBytes = key => key.includes('bytes') || key === 'memory';
const counted2 = entries => facts(entries.map(([key, n]) => [words(key), isBytes(key) ? bytes(n) : number(n)]));

/* Labels that depend on the report. */
function counts() {
    const c = take('counts'), entries = Object.entries(c).filter(([key, n]) => typeof n === 'number' && (n > 0 || (WRITES && key === 'left_out')));
    LABELS.out_bytes = c.cast > 0 ? 'of these in the output, before the cast' : 'tensor bytes in the output';
    LABELS.left_out = WRITES ? 'tensors left out' : 'other data';
    if (entries.length > 0)
        section('Counts', counted2(entries));
}
