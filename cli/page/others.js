/* others.js: members of the report that no other part of the page shows, and the order of the parts. */

/* A number, a text, or a list of them. */
function plain(key, value) {
    if (typeof value === 'number')
        return isBytes(key) ? bytes(value) : Number.isInteger(value) ? number(value) : figure(value);
    if (typeof value === 'boolean')
        return value ? 'yes' : 'no';
    if (Array.isArray(value) && value.every(one => typeof one === 'number'))
        return shape(value);
    return Array.isArray(value) ? value.map(one => plain(key, one)).join('; ') : value !== null && typeof value === 'object' ? Object.entries(value).map(([k, v]) => `${words(k)} ${plain(k, v)}`).join(', ') : String(value ?? '');
}

const isRow = value => value !== null && typeof value === 'object' && !Array.isArray(value);

function other(key, value, title = sentence(words(key)).slice(0, -1)) {
    if (Array.isArray(value) && value.length > 0 && isRow(value[0])) {
        const keys = [...new Set(value.flatMap(one => Object.keys(one)))];
        table(title, value, keys.map((k, at) => at === 0 ? named(words(k), one => plain(k, one[k] ?? ''))
            : {title: words(k), cell: one => parted(plain(k, one[k] ?? '')), key: one => one[k] ?? '', number: typeof value[0][k] === 'number'}));
    } else if (Array.isArray(value)) {
        names(title, value.map(String), 'name');
    } else if (isRow(value)) {
        const flat = Object.entries(value).filter(([, one]) => !(Array.isArray(one) && one.some(isRow)));
        section(title, facts(flat.map(([k, one]) => [words(k), plain(k, one)])));
        for (const [k, one] of Object.entries(value).filter(([, one]) => Array.isArray(one) && one.some(isRow)))
            other(k, one, `${title}: ${words(k)}`);
    }
}

function others() {
    const plan = take('plan'), rest = Object.entries(report).filter(([key, value]) => !shown.has(key) && value !== '' && value !== null), single = rest.filter(([, value]) => typeof value !== 'object');
    if (single.length > 0)
        section('Remarks', report.note ? make('p', {}, sentence(report.note)) : null, facts(single.filter(([key]) => key !== 'note').map(([key, value]) => [words(key), plain(key, value)])));
    if (plan)
        section('Plan', make('pre', {}, plan));
    for (const [key, value] of rest.filter(([, one]) => typeof one === 'object'))
        other(key, value);
}

/* Links to the sections, after the first lines. */
function contentsOfPage() {
    if (titles.length > 3)
        document.querySelector('header').append(make('nav', {'aria-label': 'Sections'}, make('ul', {}, ...titles.map(([id, title]) => make('li', {}, make('a', {href: `#${id}`}, title))))));
}

header();
failure();
findings();
remarks();
next();
average();
nearness();
layers();
differences();
equals();
untested();
outputs();
contents();
ranks();
training();
counts();
unchecked();
units();
tensors();
distances();
pieces();
others();
glossary();
contentsOfPage();
document.getElementById('page').append(make('footer', {}, [report.version && `fsdpck ${report.version}`, report.time && `run on ${report.time}`,
    'The page was made with --html. Its numbers are those of --json; the report is in this page as JSON.'].filter(Boolean).join(' \u00b7 ')));
