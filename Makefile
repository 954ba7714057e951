# Targets a person types; .ci/run calls the same ones.
# bench is a module of its own: what draws its charts is no dependency of the library.

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LINT     := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# The packages whose tests run again under the race detector.
RACE     ?= ./sandbox/... ./layers/... ./chunkstore/... ./fs/...

PREFIX   ?= /usr/local

.PHONY: build install deps test race hunt lint bench bench-peers clean

LDFLAGS  := -ldflags '-X main.version=$(VERSION)'

# snapfs is the client, which starts fast; snapfs-engine is the complete command, which it runs for the daemon.
build:
	CGO_ENABLED=0 $(GO) build $(LDFLAGS) -o bin/snapfs ./cmd/snapfs-client
	$(GO) build $(LDFLAGS) -o bin/snapfs-engine ./cmd/snapfs

# The last name is the one by which mount(8) and /etc/fstab find it; they look in /sbin.
install: build
	install -D bin/snapfs $(DESTDIR)$(PREFIX)/bin/snapfs
	install -D bin/snapfs-engine $(DESTDIR)$(PREFIX)/libexec/snapfs/snapfs-engine
	install -d $(DESTDIR)/sbin
	ln -sf $(PREFIX)/bin/snapfs $(DESTDIR)/sbin/mount.fuse.snapfs

# Installs the Debian packages that the tests call and this machine lacks; does nothing where all are there.
deps:
	./.ci/deps

# One package at a time (-p 1): a test that makes a mount namespace copies all mounts, also those of other packages' tests.
test: deps build
	$(GO) vet ./...
	$(GO) -C bench vet ./...
	$(GO) test -p 1 -timeout 1200s ./... </dev/null
	$(GO) -C bench test -p 1 -timeout 1200s ./... </dev/null

race: deps
	$(GO) test -race -p 1 -timeout 900s $(RACE) </dev/null

# Random tests with new seeds; everything else runs them with always the same one, or that of SNAPFS_SEED.
MINUTES  ?= 10
hunt: deps build
	./.ci/hunt $(MINUTES)

lint:
	$(GO) run $(LINT) run --timeout 8m ./...
	$(GO) run -C bench $(LINT) run --timeout 8m --config ../.golangci.yml ./...

# What finishes in half an hour on two cores; `$(GO) run -C bench . --help` has the rest.
bench: build
	$(GO) run -C bench . all

bench-peers: build
	$(GO) run -C bench . peers

clean:
	rm -rf bin
