# Targets for people; .ci/run calls the same ones.
# bench is its own module, so that its dependencies are not those of the library.

GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LINT     := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
# Tests wait for disks and processes more than they compute. So they run in lanes side by side, one package at a time in
# each, and each test binary in a mount namespace of its own; what takes the longest comes first.
# Those of fs switch io_uring on for the whole system, so what mounts workspaces is not tested beside them.
LANES    ?= 3
TEST     := $(GO) test -p 1 -timeout 1200s -vet=off -exec '"$(CURDIR)/.ci/isolate"'
STORES   := ./chunkstore/... ./layers/... ./squashfs/...
OTHERS    = ./sandbox ./sandbox/daemon $$($(GO) list ./... | grep -vE '^snapfs/(chunkstore|fs|layers|squashfs|internal/e2e)(/|$$)')
# What tests internal/e2e takes half as long in two lanes. Those that use podman stay in one: its locks are the machine's.
E2E      := '^Test([E-P]|Container|Replaced|RunContainer|Systemd)'

BIN      ?= bin

PREFIX   ?= /usr/local
# Where mount(8) looks for helpers: for a package the directory to which /sbin leads.
HELPERS  ?= /sbin
ZSH      ?= $(PREFIX)/share/zsh/site-functions

.PHONY: build client man package install files system deps test test-e2e-1 test-e2e-2 test-others test-bench test-clients test-stores test-fs \
  race race-stores race-sandbox race-fs race-adapters hunt lint bench bench-peers clean

# snapfs is the client, which starts fast; snapfs-engine is the complete command, which it runs for the daemon. Both are
# static. With a C compiler the engine has zstd's C library, without one Go's. Where the compiler has no static C library,
# the engine of 'build' is dynamic, and that of 'package' is made without the compiler.
LDFLAGS  := -X main.version=$(VERSION)
CC       ?= cc
STATIC   := $(shell echo 'int main(void){return 0;}' | $(CC) -static -x c -o /dev/null - 2>/dev/null && echo yes)
ifeq ($(STATIC),yes)
ENGINE   := CGO_ENABLED=1 $(GO) build -tags netgo,osusergo -ldflags '$(LDFLAGS) -linkmode external -extldflags -static'
PACKED   := $(ENGINE)
else
ENGINE   := $(GO) build -ldflags '$(LDFLAGS)'
PACKED   := CGO_ENABLED=0 $(ENGINE)
endif

build: client
	$(ENGINE) -o $(BIN)/snapfs-engine ./cmd/snapfs

client:
	CGO_ENABLED=0 $(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/snapfs ./cmd/snapfs-client

# Manual pages, made of --help.
man:
	$(GO) run ./cmd/mkman -version '$(VERSION)' $(BIN)/man

# A .deb and a static tarball in dist.
package: client man
	$(PACKED) -o $(BIN)/snapfs-engine ./cmd/snapfs
	./packaging/package '$(VERSION)' '$(BIN)' dist

# On a machine that systemd runs, the service is started. Users get what they can use: no service, no mount helper.
UNIT     := $(DESTDIR)$(PREFIX)/lib/systemd/system/snapfs.service
WHOLE    := $(if $(DESTDIR),yes,$(filter 0,$(shell id -u)))
install: build man
	@if [ -e $(UNIT) ]; then touch $(BIN)/installed; else rm -f $(BIN)/installed; fi
	$(MAKE) files $(if $(WHOLE),system)
	@if [ -z "$(DESTDIR)" ] && [ -n "$(WHOLE)" ]; then \
	  PATH=$(PREFIX)/bin:$$PATH sh packaging/debian/postinst configure $$(ls $(BIN)/installed 2>/dev/null); fi

# The helper is for mount(8) and /etc/fstab, which look for it in /sbin.
SUBST    := sed 's|@PREFIX@|$(PREFIX)|g'
system:
	install -d $(DESTDIR)$(HELPERS)
	ln -sf $(PREFIX)/bin/snapfs $(DESTDIR)$(HELPERS)/mount.fuse.snapfs
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system $(DESTDIR)/etc/logrotate.d
	$(SUBST) packaging/systemd/snapfs.service >$(UNIT)
	$(SUBST) packaging/systemd/snapfs-holder.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/snapfs-holder.service
	$(SUBST) packaging/systemd/snapfs.socket >$(DESTDIR)$(PREFIX)/lib/systemd/system/snapfs.socket
	[ -e $(DESTDIR)/etc/snapfs/daemon.toml ] || install -D -m 644 packaging/daemon.toml $(DESTDIR)/etc/snapfs/daemon.toml
	$(SUBST) packaging/logrotate >$(DESTDIR)/etc/logrotate.d/snapfs

SHARE    := $(DESTDIR)$(PREFIX)/share
files:
	install -D $(BIN)/snapfs $(DESTDIR)$(PREFIX)/bin/snapfs
	install -D $(BIN)/snapfs-engine $(DESTDIR)$(PREFIX)/libexec/snapfs/snapfs-engine
	install -d $(SHARE)/man/man1 $(SHARE)/man/man8
	install -m 644 $(BIN)/man/*.1.gz $(SHARE)/man/man1
	install -m 644 $(BIN)/man/*.8.gz $(SHARE)/man/man8
	install -d $(SHARE)/bash-completion/completions $(DESTDIR)$(ZSH) $(SHARE)/fish/vendor_completions.d
	$(BIN)/snapfs completion bash >$(SHARE)/bash-completion/completions/snapfs
	$(BIN)/snapfs completion zsh >$(DESTDIR)$(ZSH)/_snapfs
	$(BIN)/snapfs completion fish >$(SHARE)/fish/vendor_completions.d/snapfs.fish

# Installs the Debian packages that the tests need, if they are missing.
deps:
	./.ci/deps

# The lanes find compiled what they have in common, the commands of internal/e2e as well.
test: deps build
	$(GO) build ./...
	CGO_ENABLED=0 $(GO) build ./cmd/...
	$(MAKE) -j $(LANES) test-fs test-stores

test-e2e-1:
	$(TEST) -run $(E2E) ./internal/e2e </dev/null

test-e2e-2:
	$(TEST) -skip $(E2E) ./internal/e2e </dev/null

test-others:
	$(TEST) $(OTHERS) </dev/null

test-bench:
	cd bench && $(TEST) ./... </dev/null

# They mount no workspaces.
test-stores:
	$(TEST) $(STORES) </dev/null

# The last of those that mount workspaces.
test-fs: test-e2e-1 test-e2e-2 test-others test-bench test-clients
	$(TEST) ./fs/... </dev/null

# The package for JavaScript, against the daemon.
# Registries have bad moments; the second time most is in the cache.
CLIENTS  := clients/typescript
NPM      := timeout 300 npm ci --ignore-scripts --no-audit --no-fund --prefer-offline --fetch-timeout=60000
test-clients:
	test -x $(BIN)/snapfs-engine || $(MAKE) build
	cd $(CLIENTS) && { $(NPM) || $(NPM); } </dev/null
	cd $(CLIENTS) && timeout 120 npm run check && timeout 120 npm run build
	cd $(CLIENTS) && SNAPFS_ENGINE="$(abspath $(BIN))/snapfs-engine" timeout 300 "$(CURDIR)/.ci/isolate" node_modules/.bin/vitest run </dev/null

# Packages with concurrent goroutines are tested again under the race detector. Those of RACELESS have none: what they are
# given is looked at by the tests of the packages that use them. The adapters are left to
# 'make race-adapters': what is concurrent is below them, and .ci/run has half an hour.
RACELESS := chunkstore/internal/(cdc|prefix|sketch|transform)|sandbox/internal/(cgroup|errclass|imagefile|pace|secret|tarlayer)
ADAPTERS := sandbox/(api/wire|statehttp|httpapi|mcp)
RACES     = grep -vE '/($(RACELESS)|$(ADAPTERS))$$'
race: deps
	$(GO) build -race ./sandbox/... ./fs/...
	$(MAKE) -j $(LANES) race-fs race-stores

race-stores:
	$(TEST) -race ./chunkstore ./layers/... $$($(GO) list ./chunkstore/internal/... | $(RACES)) </dev/null

race-sandbox:
	$(TEST) -p 2 -race ./sandbox ./sandbox/daemon $$($(GO) list ./sandbox/... | $(RACES)) </dev/null

race-fs: race-sandbox
	$(TEST) -race ./fs/... </dev/null

race-adapters: deps
	$(TEST) -p 2 -race $$($(GO) list ./sandbox/... | grep -E '/($(ADAPTERS))$$') </dev/null

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
	rm -rf bin dist
