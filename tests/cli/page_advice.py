"""Checks of report_pages: what a page says of failures, next steps, notes, steps, samples and sizes. Each takes run(program, *arguments, status=0)."""
import json
import os
import pickle
import shutil
import subprocess


def report_of(page):
    return json.loads(page.read_text(encoding="utf-8").split('id="report">', 1)[1].split("</script>", 1)[0])


class Record:
    """Any object of torch."""

    def __init__(self, *arguments):
        self.arguments = arguments

    def __setstate__(self, state):
        self.__dict__.update(state if isinstance(state, dict) else {})

    def __hash__(self):
        return id(self)


class Metadata(pickle.Unpickler):
    """`.metadata`, without torch."""

    def find_class(self, module, name):
        return Record if module.startswith("torch") else super().find_class(module, name)


def lost_names(folder):
    """Names with a part outside its file, by `.metadata`."""
    with open(folder / ".metadata", "rb") as file:
        stored = Metadata(file).load().storage_data
    size = {info.relative_path: (folder / info.relative_path).stat().st_size if (folder / info.relative_path).exists() else 0 for info in stored.values()}
    return {index.fqn for index, info in stored.items() if info.offset + info.length > size[info.relative_path]}


def copy(source, folder):
    shutil.copytree(source, folder)
    return folder


def check_failed_diff(run, program, source, work, pages):
    """The side that failed, why, and a command that examines it; the other side was opened."""
    page, short = work / "failed.html", copy(source, work / "short")
    os.truncate(short / "__1_0.distcp", 40000)
    for a, b, side in ((source, short, "B"), (short, source, "A")):
        run(program, "diff", "--html", page, a, b, status=3)
        shown = pages.open(page)
        assert "Failed: %s could not be read: '%s" % (side, short / "__1_0.distcp") in shown.text(), shown.text()
        assert shown.row("path")[1:] == [str(a), str(b)], shown.rows
        assert shown.row("result")[1:] == (["opened", "could not be read"] if side == "B" else ["could not be read", "not opened"]), shown.rows
        assert "Next" in shown.headings and "fsdpck verify %s" % short in shown.text(), shown.text()
        assert "tensors are whole (" in shown.text().split("There is no result")[0], shown.text()  # in the first lines
    run(program, "diff", "--html", page, source, work / "nowhere", status=5)
    shown = pages.open(page)
    assert "Failed: B could not be read: '%s': no such file or folder" % (work / "nowhere") in shown.text(), shown.text()
    assert "fsdpck verify" not in shown.text(), shown.text()  # there is nothing to verify


def check_advice(run, program, source, work, pages):
    """One step for a file, that of the error; then a check, and in a run the newest complete checkpoint. Both commands run."""
    bad, page = copy(source, work / "run" / "step-9"), work / "advice.html"
    data = bytearray((bad / "__1_0.distcp").read_bytes())
    data[60000] ^= 0x40
    (bad / "__1_0.distcp").write_bytes(data)
    old = (bad / ".metadata").stat().st_mtime - 9000
    for path in bad.iterdir():
        os.utime(path, (old, old + 9000 * (path.name == "__1_0.distcp")))
    run(program, "verify", "--level", "checksum", "--html", page, bad, status=1)
    found = {one["finding"]: one for one in report_of(page)["findings"]}
    assert found["ZIP-CRC"]["severity"] == "error" and found["DCP-NEWER"]["severity"] == "warning", found
    shown = pages.open(page)
    steps = {row[1]: row[3] for row in shown.rows if len(row) == 4 and row[0] in ("error", "warning")}
    assert steps["ZIP-CRC"] == found["ZIP-CRC"]["next"], steps
    assert steps["DCP-NEWER"] == "Once ZIP-CRC is solved: " + found["DCP-NEWER"]["next"], steps
    next_part = shown.text().split("'%s': %s" % (bad / "__1_0.distcp", found["ZIP-CRC"]["next"]))
    assert len(next_part) == 2 and found["DCP-NEWER"]["next"] not in next_part[1], shown.text()
    assert "fsdpck verify --level checksum %s" % bad in next_part[1] and "fsdpck latest %s" % (work / "run") in next_part[1], shown.text()
    copy(source, work / "run" / "step-8")
    newest = run(program, "latest", "--level", "checksum", work / "run").stdout
    assert newest == "%s\n" % (work / "run" / "step-8"), newest


def check_whole(run, program, source, work, pages):
    """A missing or short file: how many tensors are whole, and which are lost."""
    short, missing, page = work / "short", copy(source, work / "missing"), work / "whole.html"
    (missing / "__2_0.distcp").unlink()
    every = {one["name"]: one["bytes"] for one in json.loads(run(program, "inspect", "--table", "--json", source).stdout)["tensors"]}
    for folder in (short, missing):
        run(program, "verify", "--html", page, folder, status=1)
        error = next(one for one in report_of(page)["findings"] if one["severity"] == "error")
        lost = lost_names(folder)
        whole = [nbytes for name, nbytes in every.items() if name not in lost]
        assert len(lost) > 3 and whole and any(name in error["found"] for name in lost), lost
        objects = sum(name not in every for name in lost)
        text = "%d of %d tensors are whole (%d bytes%s), %d tensors%s are lost or cut: " % (
            len(whole), len(every), sum(whole), ", at most 8 bytes each, such as steps" if max(whole) <= 8 else "", len(lost) - objects,
            " and %d objects" % objects if objects else "")
        named = error["found"].count("', '") + 1
        assert text in error["found"] and 1 <= named <= 3 and error["found"].endswith(" and %d more" % (len(lost) - named)), (error, text)
        assert error["found"] in pages.open(page).text(), pages.read().text()
        assert "Errors: 1 error: %s" % error["message"] in pages.read().text() and "Found: %s." % error["found"].removeprefix("1 file is missing: ") in pages.read().text(), pages.read().text()
        assert "Sizes" not in pages.read().headings  # nothing was opened
        assert "Everything in the files, whole tensors too: the checkpoint could not be opened." in pages.read().text(), pages.read().text()
        assert "A tensor is counted as whole if the files have all its bytes." in pages.read().text(), pages.read().text()


def check_notes(run, program, fixtures, work, pages):
    """What a run prints on standard error is on its page."""
    page, source = work / "notes.html", fixtures / "maps" / "litgpt-llama.llama.safetensors"
    done = run(program, "consolidate", "--dry-run", "--html", page, source, work / "notes-out")
    note = done.stderr.split(": ", 1)[1].strip()
    assert "--map" in note, done
    shown = pages.open(page)
    assert "Notes of the run" in shown.headings and note[1:] in shown.text() and "1 note: see Notes of the run." in shown.text(), shown.text()
    run(program, "consolidate", "--dry-run", "-q", "--html", page, source, work / "notes-out")
    assert "Notes of the run" not in pages.open(page).headings


def check_steps(run, program, source, work, pages):
    """The same words for the step of one folder in every command, with each record that differs."""
    folder, page = copy(source, work / "run-9" / "step-70"), work / "steps.html"
    text = "1 (object 'step'); other records: 70 (name of the folder)"
    for command in (["inspect"], ["layout", "--world-size", 2], ["reshard", "--dry-run", "--world-size", 2], ["diff"]):
        last = {"reshard": [work / "steps-out"], "diff": [source]}.get(command[0], [])
        run(program, *command, "--html", page, folder, *last)
        assert text in pages.open(page).text(), (command, pages.read().text())


def check_sample(run, program, source, work, pages):
    """A tensor without elements that were read has no statistics."""
    page = work / "sample.html"
    run(program, "verify", "--stats", "--sample", "5%", "--html", page, source)
    rows = report_of(page)["statistics"]
    unread, read = (next(one for one in rows if (one["looked_at"] == 0) == empty) for empty in (True, False))
    shown = pages.open(page)
    assert shown.row(unread["name"])[3:] == ["not read"] + [""] * 6, shown.row(unread["name"])
    assert "No tensor has NaN or infinite numbers in what was read." in shown.text(), shown.text()
    elements = 1
    for n in read["shape"]:
        elements *= n
    assert shown.row(read["name"])[3] == "%.1f %%" % (100 * read["looked_at"] / elements), shown.row(read["name"])


def check_ranks_and_rest(run, program, source, work, pages, decimal):
    """Two kinds of bytes of a rank have two names; the sizes of a plan add up."""
    page = work / "ranks.html"
    run(program, "inspect", "--html", page, source)
    assert "Bytes of tensors in the files of each rank" in pages.open(page).headings
    run(program, "layout", "--world-size", 4, "--html", page, source)
    assert "Bytes of tensors that each rank holds" in pages.open(page).headings
    run(program, "reshard", "--dry-run", "--world-size", 8, "--html", page, source, work / "rest-out")
    counts = report_of(page)["counts"]
    assert "rest of the output files%s: " % decimal(counts["bytes_written"] - counts["out_bytes"]) in pages.open(page).text(), pages.read().text()


def check_plan_with_warning(run, program, source, work, pages):
    """The step against a warning comes before the command, which would repeat its cause."""
    page = work / "idle.html"
    run(program, "layout", "--mesh", "tp=4", "--html", page, source)
    step = next(one["next"] for one in report_of(page)["findings"] if one["finding"] == "MESH-IDLE")
    text = pages.open(page).text()
    first, as_it_is = text.index("First, because of the warnings:" + step), text.index("To run it as it is:fsdpck reshard --mesh=tp=4")
    assert first < as_it_is, text


def check_dtype_colours(run, program, work, pages):
    """Eight dtypes have eight colours."""
    names = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8")
    sizes, at, header = (8, 4, 2, 2, 8, 4, 2, 1), 0, {}
    for name, size in zip(names, sizes):
        header[name] = {"dtype": name, "shape": [1], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    source, page = work / "dtypes.safetensors", work / "dtypes.html"
    source.write_bytes(len(text).to_bytes(8, "little") + text + bytes(at))
    subprocess.run([program, "inspect", "--html", str(page), str(source)], check=True, capture_output=True)
    for dark in (False, True):
        pages.open(page, dark=dark)
        colours = pages.browser.evaluate("[...document.querySelectorAll('#dtypes ~ table .key')].map(one => getComputedStyle(one).backgroundColor).join(' ')").split(" rgb")
        assert len(colours) == 8 and len(set(one.replace("rgb", "") for one in colours)) == 8, colours


def check_exponents(run, program, source, work, pages):
    """A narrow window shows the exponents too; from 1,000 pixels on, the statistics are a table."""
    page = work / "exponents.html"
    run(program, "verify", "--stats", "--html", page, source)
    pages.open(page, 360)
    seen = pages.browser.evaluate("[...document.querySelectorAll('td[data-title^=powers]')].filter(one => one.checkVisibility() && one.clientHeight > 0).length")
    assert seen == len(report_of(page)["statistics"]), seen
    for width in (1000, 1400):
        pages.open(page, width)
        assert not pages.browser.evaluate("document.querySelector('#tensors ~ .scroll table').classList.contains('narrow')"), width


def check_all(run, program, fixtures, work, pages, decimal):
    source, work = fixtures / "quickstart", work / "advice"
    work.mkdir()
    check_failed_diff(run, program, source, work, pages)
    check_advice(run, program, source, work, pages)
    check_whole(run, program, source, work, pages)
    check_notes(run, program, fixtures, work, pages)
    check_steps(run, program, source, work, pages)
    check_sample(run, program, source, work, pages)
    check_ranks_and_rest(run, program, source, work, pages, decimal)
    check_plan_with_warning(run, program, source, work, pages)
    check_dtype_colours(run, program, work, pages)
    check_exponents(run, program, source, work, pages)
