#!/usr/bin/env python3
"""sbom.py VERSION LIST: the components of fsdpck VERSION as CycloneDX 1.5. LIST has a line for each library, as a bundle's licences/LIBRARIES:

    libz.so.1: Debian zlib1g 1:1.2.13, source zlib 1:1.2.13
    libnccl.so.2
"""
import json
import re
import sys
from urllib.parse import quote

DEBIAN = re.compile(r"(?P<library>[^:]+): Debian (?P<package>\S+) (?P<version>\S+), source (?P<source>\S+)( \S+)?$")


def component(line):
    match = DEBIAN.match(line)
    if not match:
        name = line.split(":")[0]
        return {"type": "library", "bom-ref": name, "name": name, "description": line}
    # One package can have several libraries.
    url = "pkg:deb/debian/%s@%s" % (quote(match["package"]), quote(match["version"]))
    return {"type": "library", "bom-ref": "%s#%s" % (url, quote(match["library"])), "name": match["library"], "version": match["version"],
            "purl": url, "description": "Debian source package %s" % match["source"]}


def components(version, lines):
    """The text of the SBOM."""
    parts = [component(line) for line in sorted(lines)]
    program = {"type": "application", "bom-ref": "fsdpck", "name": "fsdpck", "version": version}
    return json.dumps({"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": program},
                       "components": parts,
                       "dependencies": [{"ref": "fsdpck", "dependsOn": [part["bom-ref"] for part in parts]}]},
                      indent=2).encode() + b"\n"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[2], encoding="utf-8") as listed:
        sys.stdout.buffer.write(components(sys.argv[1], listed.read().splitlines()))
