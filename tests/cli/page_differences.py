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
    assert "Next" not in shown.headings and "Counters" not in shown.text() and "The relative change of a layer is that of its tensors that differ" in shown.text(), shown.text()
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
        "Relative change: model 0.01234 % ('weight'); optimizer 25 % ('optim.state.weight.exp_avg')." in shown.text(), shown.text()
    order = [row[0] for row in shown.rows if row and row[0] in rows]
    assert order[-3:] == ["weight", "optim.state.weight.exp_avg", "optim.state.weight.step"], order
    assert shown.row("optim.state.weight.exp_avg")[-1] == "[0]: 0.5 \u2192 0.625", shown.rows
    assert [row[-1] for row in shown.rows if row and row[0] == "weight"][-1] == "[0]: 1.5 \u2192 1.5002", shown.rows


def write_parts(path, factors):
    """Two layers of a model and of its optimizer, whose values are multiplied."""
    names = ["layers.%d.w" % layer for layer in (0, 1)]
    names += ["optim.state.%s.exp_avg" % name for name in names] + ["optim.state.%s.step" % name for name in names]
    data = b"".join(struct.pack("<2f", factor, 3 * factor) if at < 4 else struct.pack("<f", factor) for at, factor in enumerate(factors))
    header, begin = {}, 0
    for at, name in enumerate(names):
        size = 2 if at < 4 else 1
        header[name] = {"dtype": "F32", "shape": [size], "data_offsets": [begin, begin + 4 * size]}
        begin += 4 * size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def check_parts(run, work, program, pages):
    """The model is not compared with the optimizer: each part has its own tables, whose bars compare its own rows, and a relative change as a whole."""
    page, a, b = work / "parts.html", work / "parts-a.safetensors", work / "parts-b.safetensors"
    write_parts(a, (1, 1, 1, 1, 1, 1))
    write_parts(b, (1.5, 1.25, 9, 3, 101, 101))
    run(program, "diff", "--html", page, a, b, status=1)
    shown = pages.open(page)
    # sqrt((.5 ** 2 + .25 ** 2) / 2) and sqrt((8 ** 2 + 2 ** 2) / 2)
    assert "Relative change: model 39.53 % as a whole, at most 50 % in one tensor ('layers.0.w'); " \
        "optimizer 583.1 % as a whole, at most 800 % in one tensor ('optim.state.layers.0.w.exp_avg')." in shown.text(), shown.text()
    wanted = ["Parts", "Layers of the model that differ", "Layers of the optimizer that differ", "Differences of the model", "Differences of the optimizer"]
    assert [title for title in shown.headings if title in wanted] == wanted, shown.headings
    assert shown.row("model")[1:] == ["2 of 2", "4 of 4", "39.53 %(L2 1.768 / 4.472)", "1.5"] and shown.row("optimizer")[1:] == ["2 of 2", "4 of 4", "583.1 %(L2 26.08 / 4.472)", "24"], shown.rows
    assert '<span class="nowrap">39.53 %</span>' in pages.browser.evaluate("document.querySelector('.verdict').innerHTML"), pages.browser.evaluate("document.querySelector('.verdict').innerHTML")
    assert "2 counters, such as the step of an optimizer, are not counted here." in shown.text(), shown.text()
    assert "Every element was compared." in shown.text() and "checksums" not in shown.text(), shown.text()
    assert [round(bar) for bar in shown.bars] == [100, 50, 100, 25, 100, 50, 100, 25], shown.bars
    assert shown.text().count("Counters, such as steps, are not in this table.") == 1, shown.text()
    assert [row[0] for row in shown.rows][-2:] == ["optim.state.layers.0.w.step", "optim.state.layers.1.w.step"], shown.rows


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
