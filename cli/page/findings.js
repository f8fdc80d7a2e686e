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

const SEVERITIES = ['error', 'warning', 'note'];

/* A difference between A and B is no error. */
const shownSeverity = f => f.severity === 'error' && f.finding.startsWith('DIFF-') ? 'difference' : f.severity;
const severe = (a, b) => SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity);
const nameOf = path => path.split('/').pop();

/* The file of a finding; that of another finding if the message alone names it. */
function fileOf(f) {
    const other = f.path ? undefined : report.findings.find(one => one.path && f.message.includes(`'${nameOf(one.path)}'`));
    return f.path ?? other?.path ?? report.source.path;
}

/* verify: the first error with a next step about the same file: what else was found there may be its consequence, unless it is of the same kind. */
const leaderOf = f => report.findings.find(one => one.severity === 'error' && one.next && fileOf(one) === fileOf(f) && (f.severity === 'error' || one.finding !== f.finding)) ?? f;

function nextStep(f) {
    const leader = report.command === 'verify' ? leaderOf(f) : f;
    if (!f.next || leader === f || leader.next === f.next)
        return f.next ? prose(f.next) : '';
    return make('span', {}, f.severity === 'error' ? `If this remains after the step of ${leader.finding}: ` : `Once ${leader.finding} is solved: `, prose(f.next));
}

function findings() {
    const order = SEVERITIES, all = take('findings').slice().sort(severe).filter(f => !isFailure(f) || f.files || f.tensors);
    if (all.length > 0)
        table('Findings', all, [
            {title: 'severity', cell: f => make('strong', {class: shownSeverity(f)}, shownSeverity(f)), key: f => order.indexOf(f.severity), first: true},
            {title: 'finding', cell: f => make('code', {}, f.finding), key: f => f.finding},
            {title: 'message and place', cell: f => make('div', {}, prose(f.message), line('tensor', f.tensor && parted(f.tensor)), line(f.path === report.source.path ? 'checkpoint' : 'file', f.path && parted(f.path)),
                line('offset', f.offset === undefined ? '' : `byte ${number(f.offset)}`), line('expected', f.expected), line('found', f.found), allNames(f, 'files', 'file'), allNames(f, 'tensors', 'tensor')), wide: true, bare: true},
            ...(all.every(isShown) ? [] : [{title: 'next step', cell: f => isShown(f) ? '' : nextStep(f), wide: true}])]);
}

/* A sentence, and the command that it announces. */
const typed = (text, command) => text === undefined ? [] : [make('p', {}, text), make('pre', {}, parted(command))];

/* Notes of the run, as on standard error. */
function remarks() {
    const all = take('remarks') || [];
    if (all.length > 0)
        section('Notes of the run', list(all.map(sentence)));
}

const worst = () => report.findings.slice().sort(severe)[0]?.severity;

/* The next step of each file, the most severe first; files with the same step together. */
function advice(of = worst()) {
    const files = new Map();
    for (const f of of === 'note' ? [] : report.findings.filter(one => one.severity === of && one.next && (of === worst() || leaderOf(one) === one))) {
        const step = leaderOf(f).next, names = files.get(step) ?? files.set(step, new Set()).get(step);
        if (fileOf(f) !== report.source.path)
            names.add(fileOf(f));
    }
    return [...files].map(([step, names]) => names.size === 0 ? step : `${some([...names].map(name => `'${name}'`))}: ${step}`);
}

/* A folder of a training step, in that of the run. */
function latestOf(path) {
    const at = path.replace(/\/+$/, '').lastIndexOf('/'), name = path.replace(/\/+$/, '').slice(at + 1);
    return /\d/.test(name) && !/\.(safetensors|pt|pth|bin|ckpt|h5|hdf5)$/.test(name) ? typed('To find the newest complete checkpoint of the run:', `fsdpck latest ${quoted(at > 0 ? path.slice(0, at) : at === 0 ? '/' : '.')}`) : [];
}

/* The command of this run of verify without a page, at a level that reads all bytes. */
function again() {
    const level = report.level === 'numeric' ? 'numeric' : 'checksum', words = (report.arguments || []).slice(1), rest = [];
    for (let at = 0; at < words.length; at++) {
        if (words[at] === '--html' || words[at] === '--level')
            at++;
        else if (!/^--(html|level)=/.test(words[at]))
            rest.push(quoted(words[at]));
    }
    return ['fsdpck verify --level', level, ...rest].join(' ');
}

/* verify with an error or a warning: the steps, the check after them, and an older checkpoint. */
function afterErrors() {
    const steps = report.command === 'verify' && !report.error.message ? advice() : [];
    if (steps.length === 0)
        return [];
    const rest = worst() === 'error' ? advice('warning') : [];
    return [list(steps), ...(rest.length > 0 ? [make('p', {}, 'Then, because of the warnings:'), list(rest)] : []), ...typed('To check the result:', again()), ...(report.findings.some(f => f.severity === 'error') ? latestOf(report.source.path || '') : [])];
}

/* diff: findings whose step is to look at what Differences shows: values, and objects with a text that differs. */
function isShown(f) {
    const all = (report.differences || []).filter(d => d.finding === f.finding);
    return all.length > 0 && (f.finding === 'DIFF-VALUES' ? all.every(d => d.first) : f.finding === 'DIFF-OBJECT' && all.every(d => d.value_a !== d.value_b));
}

/* diff: the steps of its findings. */
function beforeDiff() {
    const steps = report.command === 'diff' && !report.error.message ? [...new Set(report.findings.filter(f => f.severity !== 'note' && f.next && !isShown(f)).map(f => f.next))] : [];
    return steps.length > 0 ? [list(steps)] : [];
}

/* diff that failed: a check of the side that could not be read. */
function afterDiff() {
    const path = report.failed_side === 'A' ? report.source.path : report.failed_side === 'B' ? report.against : undefined;
    return path && report.verdict === 'findings' ? typed(`To find out what is wrong with ${report.failed_side}:`, `fsdpck verify ${quoted(path)}`) : [];
}

/* A plan whose warnings have next steps: these come before the command, which would run it as it is. */
function beforePlan() {
    const steps = report.dry_run || report.command === 'layout' ? [...new Set(report.findings.filter(f => f.severity === 'warning' && f.next).map(f => f.next))] : [];
    return steps.length === 0 ? [] : [make('p', {}, 'First, because of the warnings:'), list(steps), make('p', {}, 'To run it as it is:')];
}

/* What a command of the next step is for; undefined: the page has said it. */
function purposeOf(command) {
    if (/^fsdpck verify /.test(command))
        return WRITES ? report.dry_run ? report.average ? `To check input ${report.next.indexOf(command) + 1} first:` : 'To check the source first:' : 'To check the output:' : 'To read all bytes and compare their checksums:';
    if (WRITES && !report.dry_run)
        return 'To load it:';
    if (report.command === 'layout' || report.dry_run)
        return beforePlan().length > 0 ? undefined : report.dry_run ? 'To carry out this plan:' : 'To write a checkpoint with this layout:';
    if (report.command !== 'inspect')
        return undefined;
    const all = [[/^fsdpck inspect /, 'To see what is inside:'], [/ --merge-adapter /, 'To merge the adapter into its base model:'], [/ --part adapter /, 'To save the adapter alone:'],
        [/ '?everything[\w-]*\.pt/, 'To save everything in one file:'], [/^fsdpck consolidate /, 'To save the model alone:']];
    return all.find(([test]) => test.test(command))?.[1];
}

/* Commands, each after its purpose. */
function purposes(commands) {
    const all = commands.map(purposeOf);
    return all.some(Boolean) ? commands.flatMap((command, at) => typed(all[at] ?? '', command)) : commands.length > 0 ? [make('pre', {}, parted(commands.join('\n')))] : [];
}

/* Commands and calls as they are typed, and sentences. */
function next() {
    const all = take('next'), isTyped = text => /^(fsdpck|python|torch|import|from|\w+ = )/.test(text) || text.includes('\n'), commands = all.filter(isTyped), said = all.filter(text => !isTyped(text));
    const lead = [...afterErrors(), ...beforeDiff(), ...beforePlan()], isSpared = report.command === 'verify' && commands.length > 0;
    if (all.length + lead.length > 0)
        section('Next', ...lead, isSpared ? make('p', {}, 'To save the model alone:') : null, said.length > 0 ? list(said) : null, ...purposes(commands), ...afterDiff());
}

function untested() {
    const text = take('not_seen'), sampled = take('sampled'), stopped = take('out_of_time'), deeper = {quick: 1, structure: 1, coverage: 1, checksum: 2}[report.level];
    const isOpen = report.source.format !== undefined, on = quoted(report.source.path || '');
    const more = !isOpen || deeper === undefined ? [] : deeper === 1 ? ['To read all bytes and compare their checksums:', `fsdpck verify --level checksum ${on}`] : ['To look for NaN too:', `fsdpck verify --level numeric ${on}`], rest = sampled || stopped ? ['To read all of it:', `fsdpck verify --level ${report.level} ${on}`] : [];
    if (text)
        section('Not tested', isOpen ? make('p', {}, `${sampled || stopped ? 'Only a part was read. ' : ''}This check cannot detect:`) : null, isOpen ? list(text.split('; ')) : make('p', {}, sentence(text)), isOpen || !report.findings.some(f => f.found?.includes(' whole (')) ? null : make('p', {}, 'A tensor is counted as whole if the files have all its bytes. Whether these are right was not tested. Of the others, it was not counted how many bytes are left.'), ...typed(...rest), ...typed(...more));
}

function unchecked() {
    const all = Object.entries(take('unchecked')).filter(([, n]) => n !== true && n > 0), entries = WRITES ? [] : all, several = report.average?.inputs.length > 1;
    if (all.length === 0)
        return;
    if (!WRITES)
        section('Not compared with a checksum', make('p', {}, report.command === 'verify' && report.unchecked.tensors > 0 ? 'These tensors have no recorded checksum: a flipped bit in them is not noticed.' : ''), counted2(entries));
    else if (report.unchecked.has_checksums === false)
        section('Not compared with a checksum', make('p', {}, `The files of ${several ? 'the inputs' : 'the source'} record no checksum: a flipped bit in them is not noticed.`));
    else if (report.dry_run && report.next.some(text => text.startsWith('fsdpck verify ')))
        section('Not compared with a checksum', make('p', {}, `This command does not compare ${several ? 'the inputs with their checksums: the first commands of Next do, one for each input' : 'the source with its checksums: the first command of Next does'}.`));
    else
        section('Not compared with a checksum', ...typed(`This command does not compare the source with its checksums. To do so${several ? ', likewise for each other input' : ''}:`, `fsdpck verify --level checksum ${quoted(report.source.path || 'SRC')}`));
}
