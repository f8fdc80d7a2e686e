/* nearness.js: verify --like: how near the values are to those of the other folder, by role. */
const STATES = {small: 'a norm or bias, or fewer than 256 elements', zero: 'zeros in one of the folders', grown: 'norm grew', scaled: 'scaled', compressed: 'compressed', not_finite: 'not finite', judged: 'judged'};
const cosine = x => x === undefined ? '' : x.toFixed(4), BAR_OF_COSINES = fullAt('1, or \u22121 in red');
const cosineBar = x => x === undefined ? '' : bar(Math.abs(x), 1, x < 0 ? 'negative' : undefined);

function nearness() {
    const n = take('nearness'), like = take('like'), roles = take('near_roles') || [], all = take('near_tensors') || [];
    if (n === undefined)
        return;
    const rest = all.filter(t => !['judged', 'scaled'].includes(t.state)), scaled = all.filter(t => t.state === 'scaled'), out = [...rest, ...scaled], of = state => out.filter(t => t.state === state).length;
    const reasons = Object.keys(STATES).filter(state => of(state) > 0).map(state => `${STATES[state]}: ${number(of(state))}`).join('; ');
    const parts = all.reduce((sum, t) => sum + t.not_finite, 0);
    explained('judged');
    section(`Nearness to ${like || 'the other folder'}`, n.skipped ? make('p', {}, `The values were not compared: ${n.skipped}.`) : facts([
        ['tensors of both', number(n.tensors)], ['judged', `${number(n.judged)} in ${plural(n.judged_roles, 'role')}`], ['far', number(all.filter(t => t.far).length)], 
        ['not judged', out.length > 0 ? `${number(out.length)} (${reasons})` : '0'], ['not compared: integers, or quantized in one', n.other_tensors > 0 ? number(n.other_tensors) : ''],
        ['not compared: compressed', n.compressed > 0 ? number(n.compressed) : ''], ['elements not compared: not finite', parts > 0 ? number(parts) : '']]));
    nearRoles(roles);
    nearTensors('Tensors that are far', all.filter(t => t.far));
    nearTensors('Tensors that are scaled', scaled);
    nearTensors('Tensors that were not judged', rest);
    nearTensors('Tensors that are near', all.filter(t => t.state === 'judged' && !t.far), 12);
}

function nearRoles(roles) {
    if (roles.length > 0)
        table('Roles', roles, [
            {...named('role', r => r.role), first: false}, counted('tensors', r => r.tensors), counted('judged', r => r.judged),
            {title: 'far', cell: r => r.far > 0 ? make('strong', {class: 'error'}, number(r.far)) : '0', key: r => r.far, number: true},
            counted('least cosine', r => r.min, cosine), counted('median cosine', r => r.median, cosine),
            {title: BAR_OF_COSINES, cell: r => cosineBar(r.median), bar: true}]);
}

function nearTensors(title, rows, first) {
    if (rows.length > 0)
        table(title, rows, [named('name', t => t.name), counted('cosine', t => t.cosine, cosine), {title: BAR_OF_COSINES, cell: t => cosineBar(t.cosine), bar: true},
            {...counted('projection', t => t.projection, figure)}, ...(title.includes('not judged') ? [{title: 'reason', cell: t => make('span', {title: explained(STATES[t.state])}, STATES[t.state]), key: t => t.state}] : [])], {first});
}
