"""Of report_pages: the order of differences, and names of equal tensors."""
import json
import struct

from page_models import LAYERS, MATRICES


def check_order(shown, base, moved, relative):
    """Layers and tensors: the largest relative change first, and bars of it."""
    layers = [row[0] for row in shown.rows if len(row) > 1 and row[0].startswith("model.layers.") and row[0].count(".") == 2]
    assert layers == ["model.layers.%d" % n for n in (6, 5, 4, 3)], layers
    changes = [float(relative(base, moved, n).split()[0]) for n in (6, 5, 4, 3)]
    bars = [100 * one / changes[0] for one in changes]
    assert all(abs(a - b) < .1 for a, b in zip(bars, shown.bars)), (bars, shown.bars)
    tensors = [row for row in shown.rows if len(row) > 3 and row[0].count(".") > 3]
    found = [float(row[3].split(" %")[0]) for row in tensors]
    assert len(found) == 8 and found == sorted(found, reverse=True), found
    assert "Next" not in shown.headings and "Counters" not in shown.text() and "The relative change of a layer is that of all its tensors together" in shown.text(), shown.text()
    assert shown.row("difference")[1] == "DIFF-VALUES" and not any(row and row[0] == "error" for row in shown.rows), shown.rows


def check_counters(run, work, program, pages):
    """A counter is neither the largest change nor above other rows, and an object whose values are shown needs no advice."""
    page, rows = work / "counters.html", {"weight": ("F32", 1.5), "optim.state.weight.exp_avg": ("F32", 0.5), "optim.state.weight.step": ("F32", 2.0)}
    for side, factors in (("a", (1, 1, 1)), ("b", (1.00012345, 1.25, 9))):
        data = b"".join(struct.pack("<f", value * factor) for (_, value), factor in zip(rows.values(), factors))
        header = json.dumps({name: {"dtype": dtype, "shape": [1], "data_offsets": [4 * at, 4 * at + 4]} for at, (name, (dtype, _)) in enumerate(rows.items())}).encode()
        (work / ("counters-%s.safetensors" % side)).write_bytes(struct.pack("<Q", len(header)) + header + data)
    run(program, "diff", "--html", page, work / "counters-a.safetensors", work / "counters-b.safetensors", status=1)
    shown = pages.open(page)
    assert "Same names, shapes and dtypes; values differ in 3 of 3 tensors (1 of them a counter, such as a step). " \
        "Largest relative change: model 0.01234 % ('weight'), optimizer 25 % ('optim.state.weight.exp_avg')." in shown.text(), shown.text()
    order = [row[0] for row in shown.rows if row and row[0] in rows]
    assert order[-3:] == ["optim.state.weight.exp_avg", "weight", "optim.state.weight.step"], order
    assert "Counters, such as steps, are not in this table." in shown.text(), shown.text()
    assert shown.row("optim.state.weight.exp_avg")[-1] == "[0]: 0.5 \u2192 0.625" and len(shown.bars) >= 4, shown.rows
    assert [row[-1] for row in shown.rows if row and row[0] == "weight"][-1] == "[0]: 1.5 \u2192 1.5002", shown.rows


def check_equal(pages, base, moved):
    """Folded: without rows until it is opened."""
    same = [name for name in base if base[name] == moved[name]]
    assert len(same) == 2 * LAYERS - 8 and len(MATRICES) == 2, same
    assert "names of 6 tensors" in pages.read().text() and not any(row and row[0] in same for row in pages.read().rows)
    pages.browser.evaluate("new Promise(done => { const one = document.querySelector('#equal-tensors ~ details'); one.addEventListener('toggle', () => done(1)); one.open = true; })")
    for _ in range(50):
        rows = [row[0] for row in pages.read().rows if row]
        if all(name in rows for name in same):
            return
    raise AssertionError(rows)
