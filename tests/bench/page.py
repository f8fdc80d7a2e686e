"""Makes one HTML page of the records of scripts/bench: a row for each job, with the median of each ratio and its spread.

    page.py --records FILE --program FSDPCK --work FOLDER OUT.html

The page has no script and loads nothing. Ratios are on one logarithmic axis; more than 1: the other program takes longer.
"""
import argparse
import datetime
import html
import json
import math
import os
import pathlib
import platform
import statistics
import subprocess

WIDTH, LINE, LEFT, RIGHT = 330, 22, 18, 18

STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #5b6472; --rule: #d5d9df; --one: #9aa2ad; --mark: #0b62b8; --bar: #8fb8de; --back: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7ec; --soft: #a2abb8; --rule: #3a414c; --one: #707986; --mark: #6fb3f2; --bar: #3f6d99; --back: #14181f; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--back); margin: 2rem auto; max-width: 1360px; padding: 0 1rem; }
h1 { font-size: 1.4rem; } p, dd, dt { color: var(--soft); margin: .2rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; } dl dd { margin: .2rem 0; }
td:first-child { min-width: 12rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .45rem .8rem .45rem 0; border-top: 1px solid var(--rule); }
th { border: 0; font-weight: 600; } td.number { white-space: nowrap; font-variant-numeric: tabular-nums; }
td ul { list-style: none; margin: 0; padding: 0; } td li { height: 22px; line-height: 22px; white-space: nowrap; font-variant-numeric: tabular-nums; }
svg { display: block; } svg text { font: 11px system-ui, sans-serif; fill: var(--soft); }
.one { stroke: var(--one); } .grid { stroke: var(--rule); } .bar { stroke: var(--bar); stroke-width: 6; stroke-linecap: round; } .mark { fill: var(--mark); }
"""


def read_records(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


class Axis:
    """Logarithmic, from a power of two to a power of two, with 1 inside."""

    def __init__(self, values):
        self.low = math.floor(math.log2(min([*values, 0.5])))
        self.high = math.ceil(math.log2(max([*values, 2])))

    def at(self, value):
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log2(value) - self.low) / (self.high - self.low)

    def ticks(self):
        step = max(1, math.ceil((self.high - self.low) / 8))
        return [2.0 ** i for i in range(self.low, self.high + 1) if i % step == 0]

    def grid(self, height):
        return "".join(f'<line class="{"one" if tick == 1 else "grid"}" x1="{self.at(tick):.1f}" x2="{self.at(tick):.1f}" y1="0" '
                       f'y2="{height}"/>' for tick in self.ticks())

    def head(self):
        labels = "".join(f'<text x="{self.at(tick):.1f}" y="12" text-anchor="middle">{tick:g}</text>' for tick in self.ticks())
        return f'<svg width="{WIDTH}" height="16" aria-hidden="true">{labels}</svg>'


def figure(ratios, axis):
    """One line a ratio: a bar from the least to the most, a dot at the median."""
    height = LINE * len(ratios)
    marks = ""
    for i, ratio in enumerate(ratios):
        y, values = LINE * i + LINE / 2, ratio["values"]
        marks += (f'<line class="bar" x1="{axis.at(min(values)):.1f}" x2="{axis.at(max(values)):.1f}" y1="{y}" y2="{y}"/>'
                  f'<circle class="mark" cx="{axis.at(statistics.median(values)):.1f}" cy="{y}" r="4.5"/>')
    return f'<svg width="{WIDTH}" height="{height}" aria-hidden="true">{axis.grid(height)}{marks}</svg>'


def short(value):
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def row(job, axis):
    ratios = [r for r in job["ratios"] if r["values"]]
    items = "".join(f"<li>{html.escape(r['of'])} <b>{short(statistics.median(r['values']))}</b> "
                    f"({short(min(r['values']))} to {short(max(r['values']))})</li>" for r in ratios)
    return (f"<tr><td>{html.escape(job['job'])}</td><td class=\"number\">{statistics.median(job['seconds']):.2f} s</td>"
            f"<td><ul>{items}</ul></td><td>{figure(ratios, axis)}</td>"
            f"<td class=\"number\">{len(job['seconds'])}</td><td class=\"number\">{job['load'][0]:.1f} to {job['load'][1]:.1f}</td></tr>")


def line_of(path, key):
    with open(path, encoding="utf-8") as f:
        return next((line.split(":", 1)[1].strip() for line in f if line.startswith(key)), "unknown")


def machine(work, program):
    memory = int(line_of("/proc/meminfo", "MemTotal").split()[0]) / 2 ** 20
    kind = subprocess.run(["df", "--output=fstype", work], stdout=subprocess.PIPE, check=True).stdout.decode().split()[-1]
    version = subprocess.run([program, "--version"], stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()[0]
    return [("program", version), ("processor", f"{line_of('/proc/cpuinfo', 'model name')}, {os.cpu_count()} cores"),
            ("memory", f"{memory:.0f} GiB"), ("kernel", f"{platform.system()} {platform.release()}"), ("file system", kind),
            ("time", datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"))]


def page(jobs, facts):
    axis = Axis([v for job in jobs for r in job["ratios"] for v in r["values"]])
    loads = [load for job in jobs for load in job["load"]]
    facts = [*facts, ("load", f"{min(loads):.1f} to {max(loads):.1f}")]
    listed = "".join(f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in facts)
    rows = "\n".join(row(job, axis) for job in jobs)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Races of fsdpck</title>
<style>{STYLE}</style></head><body>
<h1>Races of fsdpck</h1>
<dl>{listed}</dl>
<p>Each ratio is the time of another program divided by the time of fsdpck in the same round: more than 1 means that fsdpck is faster.
"A / B" divides A by B. A dot is the median, a bar the spread of all rounds. All rows are from one run.</p>
<div class="wide"><table><thead><tr><th>job</th><th>fsdpck</th><th>ratio: median (spread)</th><th>{axis.head()}</th><th>rounds</th><th>load</th></tr></thead>
<tbody>
{rows}
</tbody></table></div>
</body></html>
"""


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--records", required=True)
    p.add_argument("--program", required=True)
    p.add_argument("--work", required=True)
    p.add_argument("output", type=pathlib.Path)
    a = p.parse_args()
    jobs = read_records(a.records)
    if not jobs:
        raise SystemExit("page.py: no job has a ratio")
    a.output.write_text(page(jobs, machine(a.work, a.program)), encoding="utf-8")


if __name__ == "__main__":
    main()
