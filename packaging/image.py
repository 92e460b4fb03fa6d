#!/usr/bin/env python3
"""Writes an OCI image of static programs, one for each architecture, without a daemon.

usage: packaging/image.py OUT.tar ARCHITECTURE=PROGRAM...

The image holds the program, its licences, a user for it, and nothing else: it runs without root and with a read-only root file system.
The same programs and SOURCE_DATE_EPOCH give the same image, byte for byte. Source: OCI image format specification 1.1.
"""

import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
import time
from pathlib import Path

from notices import PROJECT, notices

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# Belongs to nobody on the host.
USER = 65532
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))


def add(tar, name, contents=b"", mode=0o644, kind=tarfile.REGTYPE, owner=0):
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.type, info.mtime = len(contents), mode, kind, EPOCH
    info.uid = info.gid = owner
    tar.addfile(info, io.BytesIO(contents))


def layer(architecture, program):
    """The root file system: the program, its licences, its user, and the places that volumes are mounted to."""
    licences = {name: (PROJECT / name).read_bytes() for name in ["LICENSE-APACHE", "LICENSE-MIT"]}
    licences["THIRD-PARTY-NOTICES"] = notices("flashwise", f"{architecture}-unknown-linux-musl").encode()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        documents = ["usr/share", "usr/share/doc", "usr/share/doc/flashwise"]
        for directory in ["etc", "etc/flashwise", "run", "tmp", "usr", "usr/bin", *documents, "var", "var/lib"]:
            add(tar, directory, mode=0o1777 if directory == "tmp" else 0o755, kind=tarfile.DIRTYPE)
        for directory in ["run/flashwise", "var/lib/flashwise"]:
            add(tar, directory, mode=0o750, kind=tarfile.DIRTYPE, owner=USER)
        add(tar, "etc/passwd", f"flashwise:x:{USER}:{USER}::/var/lib/flashwise:/sbin/nologin\n".encode())
        add(tar, "etc/group", f"flashwise:x:{USER}:\n".encode())
        add(tar, "usr/bin/flashwise", Path(program).read_bytes(), mode=0o755)
        for name, contents in licences.items():
            add(tar, f"usr/share/doc/flashwise/{name}", contents)
    return out.getvalue()


class Image:
    def __init__(self, tar):
        self.tar = tar

    def blob(self, contents, media_type, **more):
        """Stores a blob and describes it."""
        digest = hashlib.sha256(contents).hexdigest()
        add(self.tar, f"blobs/sha256/{digest}", contents)
        return {"mediaType": f"application/vnd.oci.image.{media_type}", "digest": f"sha256:{digest}", "size": len(contents), **more}

    def json(self, value, media_type, **more):
        return self.blob(json.dumps(value, sort_keys=True).encode(), f"{media_type}+json", **more)

    def manifest(self, architecture, program):
        files = layer(architecture, program)
        platform = {"architecture": ARCHITECTURES[architecture], "os": "linux"}
        config = {
            **platform,
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH)),
            "config": {
                "User": f"{USER}:{USER}",
                "Entrypoint": ["/usr/bin/flashwise"],
                "Cmd": ["serve"],
                "Env": ["PATH=/usr/bin", "STATE_DIRECTORY=/var/lib/flashwise"],
                "Labels": {"org.opencontainers.image.title": "flashwise", "org.opencontainers.image.licenses": "Apache-2.0 OR MIT"},
                "StopSignal": "SIGTERM",
            },
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(files).hexdigest()]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": self.json(config, "config.v1"),
            "layers": [self.blob(gzip.compress(files, 9, mtime=0), "layer.v1.tar+gzip")],
        }
        return self.json(manifest, "manifest.v1", platform=platform)


def main():
    out, *programs = sys.argv[1:]
    named = [program.split("=", 1) for program in programs]
    unknown = [name for name, *program in named if name not in ARCHITECTURES or not program]
    if unknown or not named:
        sys.exit(f"image.py: found {unknown or 'no program'}, expected ARCHITECTURE=PROGRAM with one of {', '.join(ARCHITECTURES)}")
    with tarfile.open(out, "w") as tar:
        image = Image(tar)
        manifests = [image.manifest(architecture, program) for architecture, program in named]
        add(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests}
        # The one name that the image has: skopeo and podman take it from an index of one entry.
        if len(manifests) > 1:
            index["manifests"] = [image.json(index, "index.v1")]
        add(tar, "index.json", json.dumps(index).encode())


main()
