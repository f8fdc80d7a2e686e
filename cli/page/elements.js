'use strict';
/* elements.js: the report, elements of the page, and numbers as text. */
/* A byte of a path that is not UTF-8 is U+0000 and two digits: shown as in text, \xHH. */
const readable = json => json.includes('\\u0000') ? json.replace(/(?<!\\)((?:\\\\)*)\\u0000/g, '$1\\\\x') : json;
const report = JSON.parse(readable(document.getElementById('report').textContent));

/* Members of the report that a part of the page has shown; others.js shows the rest. */
const shown = new Set(['schema', 'verdict', 'command', 'exit_code', 'time', 'version', 'seconds', 'peak_rss']);

function take(key) {
    shown.add(key);
    return report[key];
}

function make(tag, attributes, ...inside) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {}))
        if (value !== undefined)
            element.setAttribute(name, value);
    element.append(...inside.filter(part => part !== null && part !== undefined));
    return element;
}

/* Where names and paths may break: not after their first slash. */
const BREAKS = /(?<=[^\s'"=][._/])/;

/* A name or path that breaks after its dots and slashes. There, screen readers pause: headings need an aria-label. */
function parted(text, at = BREAKS) {
    if (text === '')
        return '';
    const element = document.createElement('span');
    for (const part of String(text).split(at))
        element.append(part, document.createElement('wbr'));
    return element;
}

/* A sentence whose options do not break at their hyphens nor numbers before %, and its names as `parted`. */
function prose(text) {
    const element = document.createElement('span');
    for (const part of String(text).split(/((?<!\S)--?[a-z][\w=-]{0,40}|(?<!\S)[\d.e-]+ %|\S{16,})/))
        element.append(...(part.startsWith('-') || part.endsWith(' %') ? [make('span', {class: 'nowrap'}, part)] : /\s/.test(part) ? [part] : part.split(BREAKS).flatMap((piece, at) => at > 0 ? [make('wbr'), piece] : [piece])));
    return element;
}

/* Orders names as their layers: 2 before 10. */
const natural = name => name.replace(/\d+/g, n => n.padStart(9, '0'));

const number = n => n.toLocaleString('en-US');
const plural = (n, word) => `${number(n)} ${word}${n === 1 ? '' : 's'}`;
const figure = (x, digits = 4) => typeof x !== 'number' ? String(x ?? '') : x === 0 || (Math.abs(x) >= 1e-3 && Math.abs(x) < 1e5) ? String(+x.toPrecision(digits)) : x.toExponential(digits - 2);
/* Not 0.0 % of some, nor 100.0 % of all but some. */
function percent(part, all) {
    const found = all > 0 ? 100 * part / all : 0, text = found.toFixed(1);
    return `${found > 0 && text === '0.0' ? '<0.1' : found < 100 && text === '100.0' ? '>99.9' : text} %`;
}
const shape = sizes => '[' + sizes.join(', ') + ']';

function bytes(n) {
    const units = ['kB', 'MB', 'GB', 'TB', 'PB', 'EB'];
    if (n < 1000)
        return plural(Math.round(n), 'byte');
    let at = -1;
    do {
        n /= 1000;
        at++;
    } while (n >= 999.5 && at + 1 < units.length);
    return n.toFixed(n < 9.995 ? 2 : n < 99.95 ? 1 : 0) + ' ' + units[at];
}

/* "a, b and 3 more" */
function some(names, most = 3) {
    const first = names.slice(0, most), more = names.length - first.length;
    if (more > 0)
        return `${first.join(', ')} and ${number(more)} more`;
    return first.length < 2 ? first.join('') : `${first.slice(0, -1).join(', ')} and ${first[first.length - 1]}`;
}

const bar = (part, all, kind) => make('div', {class: 'track', 'aria-hidden': 'true'}, make('i', {class: kind, style: `width:${all > 0 ? 100 * part / all : 0}%;min-width:${part > 0 ? 1 : 0}px`}));

/* The heading of a column of bars. */
const fullAt = text => `full bar: ${text}`;

/* ---- sections ---- */

const titles = [];

function section(title, ...inside) {
    const id = title.toLowerCase().replace(/[^a-z0-9]+/g, '-');
    titles.push([id, title]);
    document.getElementById('page').append(make('section', {'aria-labelledby': id}, make('h2', {id}, title), ...inside));
}

/* pairs: [label, value]; those without a value are omitted. */
function facts(pairs) {
    return make('dl', {}, ...pairs.filter(([, value]) => value !== undefined && value !== null && value !== '').map(([key, value]) => make('div', {},
        make('dt', {}, make('span', {title: explained(key)}, key)), make('dd', {}, value instanceof Node ? value : parted(value, /(?<=[,/])/)))));
}

/* The same, one below the other, for sentences. */
function lines(pairs) {
    const all = facts(pairs);
    all.className = 'list';
    all.querySelectorAll('dt').forEach(label => label.append(': '));
    return all;
}

const list = lines => make('ul', {}, ...lines.map(line => make('li', {}, line instanceof Node ? line : line.includes(' ') ? prose(line) : parted(line))));

function svg(width, height, rects) {
    const space = 'http://www.w3.org/2000/svg', picture = document.createElementNS(space, 'svg');
    for (const [name, value] of Object.entries({width, height, viewBox: `0 0 ${width} ${height}`, 'aria-hidden': 'true'}))
        picture.setAttribute(name, value);
    for (const [x, y, w, h, kind] of rects) {
        const rect = document.createElementNS(space, 'rect');
        for (const [name, value] of Object.entries({x, y, width: w, height: h, class: kind || ''}))
            rect.setAttribute(name, value);
        picture.append(rect);
    }
    return picture;
}

/* One bar of shares, and the same as a table. */
function shares(title, parts, ...after) {
    const all = parts.reduce((sum, part) => sum + part.bytes, 0), colour = at => `var(--bar${at % 8 === 0 ? '' : at % 8 + 1})`;
    const count = part => [['tensor', part.tensors], ['object', part.objects]].filter(([, n]) => n > 0).map(([word, n]) => plural(n, word)).join(', ');
    section(title,
        make('div', {class: 'track', 'aria-hidden': 'true'}, ...parts.map((part, at) => make('i', {style: `width:${all > 0 ? 100 * part.bytes / all : 0}%;background:${colour(at)}`}))),
        make('table', {class: 'parts', 'aria-label': title}, make('tbody', {}, ...parts.map((part, at) => make('tr', {},
            make('th', {scope: 'row'}, make('span', {class: 'key', style: `background:${colour(at)}`}), make('span', {title: explained(part.name)}, part.name)),
            make('td', {class: 'count'}, count(part)), part.elements !== undefined ? make('td', {class: 'count'}, plural(part.elements, 'element')) : null,
            make('td', {class: 'number'}, bytes(part.bytes)), make('td', {class: 'number'}, percent(part.bytes, all)))))), ...after);
}
