/* outputs.js: commands that write: inputs of an average, files, and names that are not in the output. */

const isMean = a => a.schedule === undefined && a.inputs.every(one => one.coefficient === a.inputs[0].coefficient) && Math.abs(a.coefficients_sum - 1) < 1e-9;

/* The formula of an average. */
function method(a) {
    if (a.slerp !== undefined)
        return `spherical interpolation (slerp) of the two inputs at ${a.slerp}: 0 is the first, 1 the second`;
    if (a.base !== undefined)
        return `task arithmetic: base + scale × the sum of weight × (input − base)`;
    if (a.schedule !== undefined)
        return `weighted sum; the weights follow the schedule ${a.schedule}, the first input is the oldest`;
    if (a.coefficients_sum === undefined)
        return '';
    return isMean(a) ? 'mean: each input has the same weight' : 'sum of weight × input';
}

const coefficient = x => String(+x.toPrecision(6));

function inputs(a) {
    const least = Math.min(0, ...a.inputs.map(one => one.coefficient ?? 0)), most = Math.max(...a.inputs.map(one => Math.abs(one.coefficient ?? 0)));
    const at = report.error.path, isAt = one => at !== undefined && (at === one.path || at.startsWith(one.path + '/')), has = key => a.inputs.some(one => one[key] !== undefined);
    table('Inputs', a.inputs.map((one, i) => ({...one, number: i + 1})), [
        {title: 'input', cell: one => String(one.number), key: one => one.number, number: true},
        {title: 'checkpoint', cell: one => one.path, key: one => natural(one.path), name: true},
        ...(has('step') ? [{title: 'step', cell: one => one.step === undefined ? 'none' : String(one.step), key: one => one.step ?? -1, number: true}] : []),
        ...(has('coefficient') ? [{title: 'weight', cell: one => coefficient(one.coefficient), key: one => one.coefficient, number: true},
            ...(least < 0 ? [] : [{title: fullAt(coefficient(most)), cell: one => bar(one.coefficient, most), bar: true}])] : []),
        ...(at === undefined ? [] : [{title: 'result', cell: one => isAt(one) ? make('strong', {class: 'error'}, 'failed') : ''}])]);
}

function average() {
    const a = take('average');
    if (a === undefined)
        return;
    inputs(a);
    if (report.error.message && a.schedule === undefined && a.base === undefined && a.slerp === undefined)
        return;
    const off = a.base === undefined && a.coefficients_sum !== undefined && Math.abs(a.coefficients_sum - 1) > 1e-9;
    section('Method', facts([['method', method(a)], ['base', a.base], ['scale', a.scale], ['schedule', a.schedule], ['slerp', a.slerp],
        ['sum of the weights', a.coefficients_sum === undefined ? '' : coefficient(a.coefficients_sum)], ['sums are computed in', {fp32: 'float32', fp64: 'float64'}[a.accumulate] || a.accumulate],
        ['tensors averaged', a.averaged === undefined ? '' : number(a.averaged)],
        ['largest distance', a.largest_distance === undefined ? '' : figure(a.largest_distance)]]),
        off ? make('p', {class: 'warning'}, `The weights do not add up to 1: the output is ${coefficient(a.coefficients_sum)} times as large as a mean.`) : null);
}

function distances() {
    const a = report.average || {}, rows = a.distances || [], most = rows.reduce((n, one) => Math.max(n, one.distance), 0);
    if (rows.length > 0)
        table('Distance of the inputs from the average', rows, [{...named('tensor', d => d.name), first: false}, {...counted('distance', d => d.distance, figure), first: true},
            {title: fullAt(figure(most)), cell: d => bar(d.distance, most), bar: true}, {title: 'farthest input', cell: d => `${d.input}: ${a.inputs[d.input - 1]?.path ?? ''}`, key: d => d.input, wide: true}]);
}

/* Files, and names that are not in the output. */
function outputs() {
    const files = take('planned_outputs') || report.outputs, copied = take('copied') || [];
    take('outputs');
    take('dry_run');
    if (WRITES && files.length > 0)
        section(report.dry_run ? 'Files that would be written' : 'Files written', list(files.slice(0, PRINTED)), files.length > PRINTED ? make('p', {}, `and ${number(files.length - PRINTED)} more, see --json`) : null);
    names(`Files ${report.dry_run ? 'that would be copied' : 'copied'}${report.command === 'average' ? ' from the first input' : ''}`, copied, 'file');
    names('Files not copied', take('sidecars') || [], 'file');
    names('Left out', take('left_out') || [], 'tensor or object');
    names('Tied names', take('tied') || [], 'name = tensor');
    names('Left out by name, but inside objects', take('carried') || [], 'tensor');
}
