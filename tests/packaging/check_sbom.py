"""check_sbom.py SBOM LIBRARY...: the SBOM of a bundle has each library, of a Debian package that has a file of this name and is installed in this version."""
import json
import pathlib
import subprocess
import sys
from urllib.parse import unquote


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main():
    sbom = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    assert (sbom["bomFormat"], sbom["specVersion"]) == ("CycloneDX", "1.5"), sbom
    parts = {part["name"]: part for part in sbom["components"]}
    assert len({part["bom-ref"] for part in sbom["components"]}) == len(sbom["components"]), "a bom-ref is there twice"
    assert sorted(sbom["dependencies"][0]["dependsOn"]) == sorted(part["bom-ref"] for part in sbom["components"])
    libraries = [pathlib.Path(path).name for path in sys.argv[2:]]
    assert len(libraries) > 3, libraries
    for name in libraries:
        assert name in parts, "%s is missing" % name
        if "purl" not in parts[name]:  # of no package
            continue
        package, version = unquote(parts[name]["purl"].split("pkg:deb/debian/")[1]).rsplit("@", 1)
        assert version == parts[name]["version"] == output_of("dpkg-query", "-W", "-f", "${Version}\n", package).split()[0], (name, version)
        assert any(path.endswith("/" + name) for path in output_of("dpkg-query", "-L", package).split()), (name, package)
    known = set(libraries) | {"static-start", "libcudart_static.a"}
    assert set(parts) <= known, set(parts) - known


main()
