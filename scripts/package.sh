#!/usr/bin/env bash
# Makes target/package/slidegate-VERSION-TARGET.tar.gz, its checksum and its list of parts (SBOM, CycloneDX): the binary
# without symbols, the configuration, the unit for systemd, and what to read. The same files give the same archive. Beside it
# is the profile that the binary was optimised by: each training makes another one, and PROFILE takes one that there is.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo cyclonedx --version >/dev/null 2>&1; then
    cargo install --locked cargo-cyclonedx@0.5.9
fi

target=$(rustc -vV | sed -n 's/^host: //p')
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
name=slidegate-$version-$target
# Of the last change, so that two who build it from one commit and one profile agree.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}

scripts/pgo.sh slidegate

into=target/package
rm -rf "$into"
mkdir -p "$into/$name"
strip -o "$into/$name/slidegate" target/pgo/release/slidegate
cp -r config.yaml packaging/slidegate.service LICENSE README.md CHANGELOG.md docs "$into/$name/"
# Of this machine's kind alone, and without what only tests need. It writes beside the manifest.
cargo cyclonedx --format json --target "$target" --no-build-deps --override-filename slidegate-sbom >/dev/null
# Where it was built is nobody's business, and no part of it.
sed "s|path+file://$PWD|path+file:///slidegate|g" slidegate-sbom.json >"$into/$name.cdx.json"
rm slidegate-sbom.json

tar --create --gzip --file "$into/$name.tar.gz" --directory "$into" --sort=name --owner=0 --group=0 --numeric-owner \
    --mode='u=rwX,go=rX' --mtime="@$SOURCE_DATE_EPOCH" "$name"
rm -r "${into:?}/$name"
cp target/pgo/profdata "$into/$name.profdata"
(cd "$into" && sha256sum "$name.tar.gz" "$name.cdx.json" "$name.profdata" >"$name.sha256")
echo "$into:"
(cd "$into" && ls -l)
