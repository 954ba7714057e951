# Targets for people; .ci/run calls the same ones.
# bench is its own module, so that its dependencies are not those of the library.

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LINT     := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# Tests of two packages run side by side, each binary in a mount namespace of its own; what takes the longest comes first.
# Those of fs switch io_uring on for the whole system, so what mounts workspaces is not tested beside them.
TEST     := $(GO) test -p 2 -timeout 1200s -exec '"$(CURDIR)/.ci/isolate"'
FS       := ./fs/... ./layers/... ./squashfs/...
OTHERS    = ./internal/e2e $$($(GO) list ./... | grep -vE '^snapfs/(fs|layers|squashfs)(/|$$)')

PREFIX   ?= /usr/local

.PHONY: build install deps test test-others test-bench race hunt lint bench bench-peers clean

LDFLAGS  := -ldflags '-X main.version=$(VERSION)'

# snapfs is the client, which starts fast; snapfs-engine is the complete command, which it runs for the daemon.
build:
	CGO_ENABLED=0 $(GO) build $(LDFLAGS) -o bin/snapfs ./cmd/snapfs-client
	$(GO) build $(LDFLAGS) -o bin/snapfs-engine ./cmd/snapfs

# The last file is for mount(8) and /etc/fstab, which look for helpers in /sbin.
install: build
	install -D bin/snapfs $(DESTDIR)$(PREFIX)/bin/snapfs
	install -D bin/snapfs-engine $(DESTDIR)$(PREFIX)/libexec/snapfs/snapfs-engine
	install -d $(DESTDIR)/sbin
	ln -sf $(PREFIX)/bin/snapfs $(DESTDIR)/sbin/mount.fuse.snapfs

# Installs the Debian packages that the tests need, if they are missing.
deps:
	./.ci/deps

test: deps build
	$(GO) vet ./...
	$(GO) -C bench vet ./...
	$(MAKE) -j 2 test-others test-bench
	$(TEST) -vet=off $(FS) </dev/null

test-others:
	$(TEST) -vet=off $(OTHERS) </dev/null

test-bench:
	cd bench && $(TEST) -vet=off ./... </dev/null

# Packages with concurrent goroutines are tested again under the race detector.
race: deps
	$(TEST) -race ./chunkstore ./sandbox/... ./chunkstore/... </dev/null
	$(TEST) -race ./fs/... ./layers/... </dev/null

# Random tests with new seeds. All other targets use the same seed every time, or SNAPFS_SEED.
MINUTES  ?= 10
hunt: deps build
	./.ci/hunt $(MINUTES)

lint:
	$(GO) run $(LINT) run --timeout 8m ./...
	$(GO) run -C bench $(LINT) run --timeout 8m --config ../.golangci.yml ./...

# The suites that finish in half an hour on two cores. `$(GO) run -C bench . --help` lists the rest.
bench: build
	$(GO) run -C bench . all

bench-peers: build
	$(GO) run -C bench . peers

clean:
	rm -rf bin
