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

/* Commands and calls as they are typed, and sentences. */
function next() {
    const all = take('next'), isTyped = text => /^(fsdpck|python|torch|import|from|\w+ = )/.test(text) || text.includes('\n'), commands = all.filter(isTyped), said = all.filter(text => !isTyped(text));
    if (all.length > 0)
        section('Next', said.length > 0 ? list(said) : null, commands.length > 0 ? make('pre', {}, commands.join('\n')) : null);
}

/* A sentence, and the command that it announces. */
const typed = (text, command) => text === undefined ? [] : [make('p', {}, text), make('pre', {}, command)];

function untested() {
    const text = take('not_seen'), sampled = take('sampled'), stopped = take('out_of_time'), deeper = {quick: 1, structure: 1, coverage: 1, checksum: 2}[report.level];
    const isOpen = report.source.format !== undefined, on = quoted(report.source.path || '');
    const more = !isOpen || deeper === undefined ? [] : deeper === 1 ? ['To read all bytes and compare their checksums:', `fsdpck verify --level checksum ${on}`] : ['To look for NaN too:', `fsdpck verify --level numeric ${on}`];
    if (text)
        section('Not tested', isOpen ? make('p', {}, `${sampled || stopped ? 'Only a part was read. ' : ''}This check cannot detect:`) : null, isOpen ? list(text.split('; ')) : make('p', {}, sentence(text)), ...typed(...more));
}

function unchecked() {
    const all = Object.entries(take('unchecked')).filter(([, n]) => n !== true && n > 0), entries = WRITES ? [] : all;
    if (all.length > 0)
        section('Not compared with a checksum', ...(WRITES ? typed(`This command does not compare the source with its checksums. To do so${report.command === 'average' ? ', likewise for each other input' : ''}:`, `fsdpck verify --level checksum ${quoted(report.source.path || 'SRC')}`) :
            [make('p', {}, report.command === 'verify' && report.unchecked.tensors > 0 ? 'These tensors have no recorded checksum: a flipped bit in them is not noticed.' : '')]), counted2(entries));
}
