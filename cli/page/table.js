/* table.js: tables that can be sorted and filtered; a long one shows a part of its rows, and prints more. */
const ROWS = 300, PRINTED = 2000;

const classes = column => ['number', 'name', 'nowrap', 'minor', 'wide', 'bar', 'spare'].filter(one => column[one]).join(' ');

function cell(column, row) {
    const inside = column.cell(row), kind = {class: classes(column)};
    if (column.name)
        return make('th', {...kind, scope: 'row', role: 'rowheader', 'aria-label': inside}, parted(inside));
    return make('td', {...kind, role: 'cell', 'data-title': column.bar || column.bare ? undefined : column.title, 'aria-hidden': column.bar ? 'true' : undefined}, inside);
}

/* state: rows, chosen (those of the filter), shown (how many), sorted (a column) and down. */
function arranged(state) {
    const key = state.sorted?.key, sign = state.down ? -1 : 1;
    if (!key)
        return state.chosen;
    return state.chosen.map(row => [key(row), row]).sort(([x], [y]) => (x < y ? -1 : x > y ? 1 : 0) * sign).map(([, row]) => row);
}

function draw(state) {
    const order = arranged(state), most = Math.min(state.shown, order.length), rest = order.length - most;
    state.body.replaceChildren(...order.slice(0, most).map(row => make('tr', {role: 'row'}, ...state.columns.map(column => cell(column, row)))));
    state.caption.textContent = order.length < state.rows.length || rest > 0 ? `${number(most)} of ${number(state.rows.length)} shown`
        : state.rows.length > 12 ? plural(most, 'row') : '';
    state.printed.textContent = rest > 0 ? `${plural(rest, 'row')} not printed. Open the page on a screen to see all.` : '';
    state.more.hidden = rest === 0;
    state.more.textContent = rest === 0 ? '' : `Show ${number(Math.min(ROWS, rest))} more`;
}

function headings(state) {
    const heads = state.columns.map(column => {
        const head = make('th', {scope: 'col', role: 'columnheader', class: classes(column), 'data-title': column.title, title: explained(column.title), 'aria-hidden': column.bar ? 'true' : undefined});
        if (!column.key) {
            head.append(column.title);
            return head;
        }
        const button = make('button', {type: 'button'}, column.title);
        head.append(button);
        button.addEventListener('click', () => {
            state.down = state.sorted === column ? !state.down : Boolean(column.number);
            state.sorted = column;
            heads.forEach(other => other.removeAttribute('aria-sort'));
            head.setAttribute('aria-sort', state.down ? 'descending' : 'ascending');
            draw(state);
        });
        return head;
    });
    const at = state.columns.indexOf(state.sorted);
    if (at >= 0)
        heads[at].setAttribute('aria-sort', state.down ? 'descending' : 'ascending');
    return heads;
}

function filter(state, title) {
    const field = make('input', {type: 'search', 'aria-label': `Filter ${title}`, placeholder: 'Filter'});
    field.addEventListener('input', () => {
        const text = field.value.toLowerCase();
        state.chosen = state.rows.filter(row => Object.values(row).some(value => typeof value === 'string' && value.toLowerCase().includes(text)));
        state.shown = ROWS;
        draw(state);
    });
    return field;
}

/* Paper has no buttons: it gets more rows, and the number of the rest. */
function print(state) {
    let before;
    addEventListener('beforeprint', () => {
        before = state.shown;
        if (state.shown < PRINTED && state.shown < state.chosen.length) {
            state.shown = PRINTED;
            draw(state);
        }
    });
    addEventListener('afterprint', () => {
        if (before !== state.shown) {
            state.shown = before;
            draw(state);
        }
    });
}

/* A table that does not fit has a card for each row instead. A region that scrolls is a stop of the keyboard. */
function scrolling(inside, title) {
    const region = make('div', {class: 'scroll'}, inside);
    let width;
    new ResizeObserver(() => {
        if (width === region.clientWidth)
            return;
        width = region.clientWidth;
        inside.classList.remove('narrow');
        inside.classList.toggle('narrow', innerWidth <= 704 || region.scrollWidth > width);
        const scrolls = region.scrollWidth > region.clientWidth;
        for (const [name, value] of Object.entries({tabindex: '0', role: 'region', 'aria-label': title}))
            scrolls ? region.setAttribute(name, value) : region.removeAttribute(name);
    }).observe(region);
    return region;
}

/* columns: {title, cell(row): text or element, key(row): what to sort by, and as flags number, name, nowrap, bar, spare (only in wide windows), bare (without its title in narrow windows), wide (a line of its own in narrow windows), minor (not in
 * them), first (sorted by it at first)}. before and after: elements above and below the table. */
function table(title, rows, columns, options) {
    section(title, ...tableParts(title, rows, columns, options));
}

/* The elements of a table, without a heading. */
function tableParts(title, rows, columns, {first = ROWS, before = [], after = []} = {}) {
    const sorted = columns.find(column => column.first);
    const state = {rows, columns, chosen: rows, shown: first, sorted, down: Boolean(sorted?.number), body: make('tbody', {role: 'rowgroup'}), caption: make('caption', {'aria-live': 'polite'}),
                   more: make('button', {class: 'more', type: 'button'}), printed: make('p', {class: 'printed'})};
    state.more.addEventListener('click', () => { state.shown += ROWS; draw(state); });
    draw(state);
    print(state);
    return [...before, rows.length > 12 ? filter(state, title) : null,
        scrolling(make('table', {class: columns.length > 3 ? 'cards' : 'few', role: 'table', 'aria-label': title}, state.caption,
                       make('thead', {role: 'rowgroup'}, make('tr', {role: 'row'}, ...headings(state))), state.body), title), state.more, state.printed, ...after].filter(Boolean);
}

/* The columns that most tables have. */
const named = (title, name) => ({title, cell: name, key: row => natural(name(row)), name: true, first: true});
const counted = (title, count, text = number) => ({title, cell: row => count(row) === undefined ? '' : text(count(row)), key: row => count(row) ?? -1, number: true});

/* Folded: its content is made when it is opened. */
function folded(summary, content) {
    const details = make('details', {}, make('summary', {}, summary));
    details.addEventListener('toggle', () => details.append(...content()), {once: true});
    return details;
}

/* A list of names that may be long. */
function names(title, all, label, ...before) {
    if (all.length > 12)
        table(title, all.map(name => ({name})), [named(label, one => one.name)], {before, first: 12});
    else if (all.length > 0)
        section(title, ...before, list(all));
}
