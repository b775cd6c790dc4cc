# What a recipe can not say in a line or two is a script under scripts/.

.PHONY: help run release test lint soak bench fuzz package image userland
.DEFAULT_GOAL := help

help: ## List the targets
	@awk -F ': .*## ' '/^[a-z]+: .*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Build and start slidegate; UPSTREAM=host:port and REDIS_URL=redis://host:port put it before real servers
	@scripts/require.sh cargo cmake cc curl
	@scripts/run.sh

release: ## Build slidegate as it is shipped, optimised by a profile of itself at work: target/pgo/release/slidegate; 10 minutes
	@scripts/require.sh cargo cmake cc
	@scripts/timed.sh scripts/pgo.sh slidegate

# Debian keeps nginx where the search path of ordinary users does not look.
test: export PATH := $(PATH):/usr/sbin:/sbin
test: ## Run every test
	@scripts/require.sh cargo cmake cc curl nginx openssl redis-server \
		unshare nsenter setpriv mount ip iptables dnsmasq h2load prometheus promtool python3 node script strace wrk
	@scripts/timed.sh cargo test --locked

lint: export RUSTDOCFLAGS := -D warnings
lint: ## Check formatting, lints, documentation, and the dependencies' licences and advisories
	@scripts/require.sh cargo cmake cc
	@scripts/timed.sh cargo fmt --check
	@scripts/timed.sh cargo clippy --locked --all-targets -- -D warnings
	@scripts/timed.sh cargo doc --locked --no-deps
	@scripts/timed.sh cargo fmt --manifest-path fuzz/Cargo.toml --check
	@scripts/timed.sh cargo clippy --locked --manifest-path fuzz/Cargo.toml --target-dir target --all-targets -- -D warnings
	@scripts/timed.sh scripts/deny.sh

image: ## Build the image and run it read-only and without root; says so where buildah, podman, runc or debootstrap is missing
	@scripts/require.sh cargo curl
	@scripts/timed.sh scripts/image.sh

userland: ## Do in a clean Debian, from a fresh clone, what the README says; says so where debootstrap is missing; half an hour
	@scripts/timed.sh scripts/userland.sh

package: ## Make the archive for machines without containers, its checksum and SBOM, in target/package
	@scripts/require.sh cargo cmake cc strip tar
	@scripts/timed.sh scripts/package.sh

soak: export PATH := $(PATH):/usr/sbin:/sbin
soak: export QUICK := $(QUICK)
soak: fuzz ## Fuzz, then measure bounds in ms and MB on real servers, see docs/soak.md; QUICK=1 takes 6 minutes
	@scripts/require.sh cargo cmake cc nginx redis-server
	@scripts/timed.sh cargo bench --locked --bench soak

bench: export PATH := $(PATH):/usr/sbin:/sbin
bench: export QUICK := $(QUICK)
bench: ## Measure the speed as ratios to Pingora alone and to peers, see docs/bench.md; 13 minutes, QUICK=1 takes 3
	@scripts/require.sh cargo cmake cc nginx redis-server wrk haproxy goaccess taskset strip
	@scripts/timed.sh scripts/pgo.sh slidegate bare_proxy
	@SHIPPED="$(CURDIR)/target/pgo/release" scripts/timed.sh cargo bench --locked --bench speed

fuzz: export SECONDS_EACH ?= $(if $(QUICK),30,600)
fuzz: ## Look for inputs that break what must hold for any, see CONTRIBUTING.md; SECONDS_EACH=600 or QUICK=1 (30)
	@scripts/require.sh cargo cmake cc c++
	@scripts/timed.sh scripts/fuzz.sh
