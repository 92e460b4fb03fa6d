#!/usr/bin/env python3
"""Unpacks an OCI image into a directory, checking every digest on the way, and prints its configuration.

usage: packaging/unpack_image.py IMAGE.tar ARCHITECTURE DIRECTORY
"""

import gzip
import hashlib
import io
import json
import sys
import tarfile

image, architecture, directory = sys.argv[1:]
architecture = {"x86_64": "amd64", "aarch64": "arm64"}[architecture]
tar = tarfile.open(image)


def blob(descriptor):
    algorithm, digest = descriptor["digest"].split(":")
    contents = tar.extractfile(f"blobs/{algorithm}/{digest}").read()
    found = hashlib.new(algorithm, contents).hexdigest()
    if found != digest or len(contents) != descriptor["size"]:
        sys.exit(f"{descriptor['digest']}: found {found} of {len(contents)} bytes, expected {descriptor['size']}")
    return contents


def manifests(index):
    for descriptor in index["manifests"]:
        if "index" in descriptor["mediaType"]:
            yield from manifests(json.loads(blob(descriptor)))
        else:
            yield descriptor


assert json.load(tar.extractfile("oci-layout"))["imageLayoutVersion"] == "1.0.0"
index = json.load(tar.extractfile("index.json"))
(descriptor,) = [found for found in manifests(index) if found["platform"]["architecture"] == architecture]
manifest = json.loads(blob(descriptor))
config = json.loads(blob(manifest["config"]))
assert config["architecture"] == architecture
for descriptor, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
    layer = gzip.decompress(blob(descriptor))
    found = "sha256:" + hashlib.sha256(layer).hexdigest()
    if found != diff_id:
        sys.exit(f"layer: found {found}, expected {diff_id}")
    tarfile.open(fileobj=io.BytesIO(layer)).extractall(directory)
print(json.dumps(config["config"]))
