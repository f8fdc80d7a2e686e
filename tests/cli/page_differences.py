"""Of report_pages: the order of differences, and names of equal tensors."""
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
    assert "Next" in shown.headings and "the largest relative change comes first" in shown.text(), shown.text()


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
