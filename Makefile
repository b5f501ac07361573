# Towpath: what people and CI run. `make` alone lists the targets.

CARGO ?= cargo

.DEFAULT_GOAL := help
.PHONY: help demo test check bench lab lab-full lab-deps lab-tools install tools

# Where `make install` puts things; DESTDIR comes before all of it.
PREFIX ?= /usr/local


help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/make \1\t\2/p' Makefile | expand -t 14

demo: tools ## build, send a real tree between two services on loopback, verify it, change it, send it again
	@scripts/demo.sh

test: tools ## run all tests
	@scripts/test-tools.sh
	$(CARGO) test --workspace --locked

check: tools ## formatting, lints, documentation, house rules
	scripts/check-house.sh
	scripts/check-threat-model.sh
	$(CARGO) run --quiet --locked --package towpath-gate
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --workspace --no-deps --locked

bench: tools ## run the benchmarks
	$(CARGO) bench --workspace --locked
	TOWPATH_ENVIRONMENTS=3000 $(CARGO) test --release --locked --package towpath-reuse --lib -- \
	    --nocapture never_a_tenth_slower
	TOWPATH_WORLDS=3000 $(CARGO) test --release --locked --package towpath-dealer --lib -- --nocapture tests::
	$(CARGO) run --release --locked --package towpath-rendezvous --example watchers

LAB = target/release/towpath-lab

lab: lab-tools ## run the network lab's first experiment in its short form; as root, under five minutes
	$(LAB) run lab/scenarios/figure6.toml --short

lab-full: lab-tools ## run all of the lab's scenarios; as root, hours
	$(LAB) run $(wildcard lab/scenarios/*.toml)

lab-deps: tools ## install the programs that the lab compares with, by apt-get as root
	@scripts/lab-deps.sh

lab-tools: tools
	@[ "$$(id -u)" = 0 ] || { \
	    echo "make: the lab makes network namespaces and devices, which only root may: sudo make lab" >&2; exit 1; }
	$(CARGO) build --release --locked --package towpath --package towpath-lab

install: tools ## install the program, manual pages, completions and systemd units (PREFIX, DESTDIR)
	$(CARGO) build --release --locked --bin tow
	scripts/install.sh target/release/tow "$(PREFIX)" "$(DESTDIR)"

# Nothing but cargo and a C compiler is needed to build, and cargo fetches the rest by itself.
tools:
	@command -v $(CARGO) >/dev/null || { \
	    echo "make: cargo is missing; install Rust (the version that rust-version in Cargo.toml names, or later)" >&2; \
	    exit 1; }
	@command -v $${CC:-cc} >/dev/null || { \
	    echo "make: no C compiler is here (cc); SQLite and the cryptography need one to be built" >&2; \
	    exit 1; }
