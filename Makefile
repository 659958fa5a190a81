# What developers do here; `make help` lists it. On a fresh Debian 12, `make test`,
# `make demo` and `make playground` set up what they need, and say what they add. An
# ordinary user is asked for sudo.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# All users and clones of a machine share its programs and tools. Users other than
# root cannot write there, and have tools in a cache of their own.
shared := /var/tmp/cl-slurm
root   := $(shell [ "$$(id -u)" = 0 ] && echo yes)
cache  := $(if $(root),$(shared),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/cl-slurm)
tools  := $(cache)/tools/$(shell { go version; cat scripts/tools/go.mod scripts/tools/go.sum; } | sha256sum | cut -c1-12)

# Everything is compiled alike: once for the programs, their tests and the linter, and once for all
# clones of a machine.
export CGO_ENABLED := 0
export GOFLAGS     := $(filter-out -trimpath,$(GOFLAGS)) -trimpath

# The programs contain the commit where git knows it.
vcs   := $(shell git rev-parse HEAD >/dev/null 2>&1 && echo true || echo false)
build := go build -buildvcs=$(vcs) -ldflags "-s -w"

# The linter vets. Tests run as root, also when an ordinary user starts them.
unit_test := go test -vet=off -short
full_test := go test -vet=off $(if $(root),,-exec 'sudo --preserve-env')

# The tests of web pages in a browser are a module of their own.
browser := server/pages/browsertest

# Go's cache has the results of tests that use nothing of the machine. A test that does reads this variable
# (internal/testenv), and so it runs again.
export CLTEST_RUN := $(shell date +%s%N)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the programs, static, into bin/
	@mkdir -p bin
	$(build) -o bin/ ./cmd/... ./scripts/demo ./scripts/bench

.PHONY: unit
unit: ## run the tests that need no set-up, as any user; root may say AS=researcher
	$(unit_test) $(if $(AS),-exec $(CURDIR)/scripts/as-$(AS)) ./...

.PHONY: check
check: $(tools) ## lint what has changed; run its unit tests and those of what depends on it
	@scripts/check $(tools)/golangci-lint

.PHONY: test
test: cluster-up postgres-up install ## run all tests, on a real Slurm cluster and a real PostgreSQL
	@timeout 60 scripts/oidc-provider up || echo "there is no provider of OpenID Connect: the tests of sign-ins by a browser are skipped"
	@command -v chromium >/dev/null || echo "there is no Chromium (scripts/setup browser): the tests of web pages in a browser are skipped"
	@$(MAKE) --no-print-directory -j2 test-product test-nfs
	@$(MAKE) --no-print-directory test-browser

# Debian's npm is 300 packages, and scripts/setup does not install it. Where the provider is, no test that needs it may be
# skipped; where it is not, "make test" says so.
oidc = $$(! scripts/oidc-provider dir >/dev/null 2>&1 || echo ,oidc)

# Tests wait most of their time: more packages than there are cores run at once, the end-to-end tests
# first. Continuous integration says AFTER=unit: the unit tests have run the server on SQLite before.
.PHONY: test-product
test-product:
	eval "$$(scripts/slurm-cluster env)"; \
	CLTEST_REQUIRE=slurm,containers,researcher,postgres,mariadb$(oidc) $(full_test) -p=4 -timeout=45m ./internal/testsite \
	$$(go list ./... | grep -v '$(if $(AFTER),/server$$,^$$)')
	CLTEST_REQUIRE=containers,postgres$(oidc) CLTEST_SERVER_DATABASE=postgres $(full_test) -timeout=45m ./server

# All tests of the packages that have some on Slurm. The clusters stay up.
.PHONY: test-slurm
test-slurm: cluster-up install ## run the tests that need Slurm on three of them: Debian 12's, trixie's and sid's
	@for slurm in '' trixie sid; do \
	export SLURM=$$slurm; scripts/slurm-cluster up; eval "$$(scripts/slurm-cluster env)"; echo "== $$(sinfo --version)"; \
	CLTEST_REQUIRE=slurm,containers,researcher $(full_test) -timeout=45m \
	./internal/testsite ./internal/explained ./sbatch/... ./pilot/slurmbatch ./bridge/admin/doctor ./bridge/imagejob ./cmd/cl-worker ./cmd/cl-worker-manager; done

# Slurm gets two jobs a second, and some jobs end by Slurm's own limit of a minute: 500 take about a quarter of an hour.
.PHONY: test-report
test-report: cluster-up install ## compare the bills of many real jobs of all kinds with those of sacct; JOBS=500
	eval "$$(scripts/slurm-cluster env)"; \
	CLTEST_REQUIRE=slurm,containers,researcher CLTEST_REPORT_JOBS=$(or $(JOBS),500) $(full_test) -v -timeout=60m -run ReportAgreesWithSacct ./internal/testsite

# The first time, this builds Kubernetes, which takes about eight minutes of one processor. The cluster stays up.
# A test that needs it is in a package for Kubernetes, or has Pod or Kubernetes in its name.
.PHONY: test-kubernetes
test-kubernetes: kubernetes-up ## run the tests that need Kubernetes on a real one
	eval "$$(scripts/kubernetes env)"; export CLTEST_REQUIRE=kubernetes; \
	tests() { go test -vet=off $(if $(root),,-exec "sudo --preserve-env env PATH=$$PATH") -p=2 -timeout=45m "$$@"; }; \
	tests $$(go list ./... | grep -E '/(kube[a-z]*|pods)(/|$$)'); \
	tests -run 'Pod|Kubernetes' ./apptainer/container ./cmd/cl-worker ./cmd/cl-worker-manager; \
	tests -run '^Test(Fidelity|WallsHold|TableOf).*/^kubernetes$$' ./apptainer/container; \
	cd scripts/chart; tests ./...

.PHONY: test-nfs
test-nfs:
	cd cache/nfstest && CLTEST_REQUIRE=fuse,researcher $(full_test) -timeout=15m ./...

# CLTEST_AXE=/path/to/axe.min.js (npm pack axe-core) also checks the pages by the rules of axe-core.
.PHONY: test-browser
test-browser: ## play the web pages in Chromium (scripts/setup browser)
	cd $(browser) && CLTEST_REQUIRE=$$(! command -v chromium >/dev/null || echo chromium) go test -vet=off -timeout=30m ./...

# docs/server.md and docs/researchers.md show them.
.PHONY: screenshots
screenshots: ## make the pictures of web pages in docs/pages, in Chromium
	mkdir -p docs/pages
	cd $(browser) && CLTEST_REQUIRE=chromium go test -vet=off -count=1 -run Screenshots . -screenshots $(CURDIR)/docs/pages

# The tests stop parts of the site, and start them again. The site stays.
.PHONY: test-site
test-site: site-up ## run the tests of a small real site, with a release that is built first; RUN=LateNode runs some
	$(MAKE) --no-print-directory release PLATFORMS=linux/amd64
	eval "$$(scripts/site env)"; \
	CLTEST_REQUIRE=site CLTEST_RELEASE=$(CURDIR)/dist $(full_test) -v -timeout=90m $(if $(RUN),-run '$(RUN)') ./internal/realsite

# This takes about a minute of two cores, in which the tests of `make test` would meet their
# time limits. Root builds with caches of its own.
.PHONY: test-release
test-release: setup ## build a release twice, compare, install and remove its packages
	cd scripts/release && $(if $(root),,sudo) env PATH="$$PATH" CLTEST_RUN=$(CLTEST_RUN) CGO_ENABLED=0 CLTEST_REQUIRE=packages go test -vet=off -timeout=15m ./...

.PHONY: release
release: ## build archives, packages, SBOM and digests of a release into dist/; VERSION=v1.2.3 instead of git's tag, SIGN_KEY=~/.ssh/id_ed25519 signs it, URL= is where it will lie
	cd scripts/release && go run . -source ../.. -out ../../dist $(if $(VERSION),-version $(VERSION)) $(if $(URL),-url $(URL)) $(if $(PLATFORMS),-platforms $(PLATFORMS)) $(if $(SIGN_KEY),-sign-key $(SIGN_KEY))

.PHONY: worker-image
worker-image: ## build the workers' container image into dist/cl-worker-image.tar, an OCI archive; PUSH=registry/name:tag pushes it, PLATFORMS=linux/amd64 limits it
	go run -buildvcs=false ./scripts/workerimage -out dist/cl-worker-image.tar $(if $(VERSION),-version $(VERSION)) $(if $(PLATFORMS),-platforms $(PLATFORMS)) $(if $(PUSH),-push $(PUSH)) $(if $(SUITE),-suite $(SUITE)) $(if $(MIRROR),-mirror $(MIRROR)) $(if $(SECURITY_MIRROR),-security-mirror $(SECURITY_MIRROR))

.PHONY: race
race: ## run the unit tests under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(unit_test) -race ./...

.PHONY: lint
lint: $(tools) ## check layering, style and format
	$(tools)/golangci-lint run --allow-serial-runners ./...
	for module in cache/nfstest $(browser) scripts/chart scripts/release scripts/lib/kubernetes; do \
	(cd $$module && $(tools)/golangci-lint run --allow-serial-runners -c $(CURDIR)/.golangci.yml ./...) || exit; done
	for os in darwin windows; do GOOS=$$os go build -o /dev/null ./cmd/cl || exit; done
	@unformatted=$$($(tools)/gofumpt -l $$(git ls-files -co --exclude-standard '*.go')); \
	[ -z "$$unformatted" ] || { echo "not formatted by gofumpt:"; echo "$$unformatted"; exit 1; }
	@! git grep -nE '(^|[{:;])[[:space:]]*go (func\b|[[:alnum:]_.]*[[(])' -- '*.go' ':!*_test.go' ':!*/testdata/*' ':!internal/background/' || \
	{ echo "start goroutines with internal/background, a sync.WaitGroup or an errgroup"; exit 1; }
	@! command -v shellcheck >/dev/null || (cd scripts && shellcheck -x setup slurm-cluster day kubernetes site postgres azure-tools oidc-provider vuln lib/cluster/furnish lib/kubernetes/{furnish,apart} lib/site/boot lib/site/room lib/site/root/usr/local/sbin/* release/*.sh)

# It needs the database of vulnerabilities, which many networks do not reach: scripts/vuln ends with exit code 4 then,
# which make calls "Error 4".
.PHONY: vuln
vuln: $(tools) ## look for known vulnerabilities in the code that the programs call; GOVULNDB=https://… asks a mirror
	@scripts/vuln $(tools)/govulncheck

.PHONY: fuzz
fuzz: ## run all fuzz targets, for ten minutes in all; FOR=1h another time, ONLY=FuzzUnpack some of them
	go run ./scripts/fuzz -time $(or $(FOR),10m) $(if $(ONLY),-only '$(ONLY)')

.PHONY: demo
demo: cluster-up install ## start a site and show the main job; IMAGE=… uses another image
	IMAGE='$(IMAGE)' $(if $(root),,sudo --preserve-env=IMAGE,SLURM) $(shared)/bin/demo

.PHONY: playground
playground: cluster-up install ## start the demo's site for you to type commands into, until Ctrl-C
	IMAGE='$(IMAGE)' $(if $(root),,sudo --preserve-env=IMAGE,SLURM) $(shared)/bin/demo playground

# docs/researchers.md and docs/operators/a-day.md show what it prints. It takes about eight minutes.
.PHONY: day
day: cluster-up ## print a run on a busy cluster and an operator's day, with packages that it builds, installs and removes
	@for version in v0.9.0 v0.9.1; do \
	(cd scripts/release && go run . -source ../.. -out ../../dist/$$version -version $$version -platforms linux/amd64 >&2) || exit; done
	@eval "$$(scripts/slurm-cluster env)"; $(if $(root),,sudo) env PATH="$$PATH" SLURM_CONF="$$SLURM_CONF" scripts/day dist/v0.9.0 dist/v0.9.1

# First paints and bytes of web pages, on a slow phone's line as Lighthouse has it.
.PHONY: bench-browser
bench-browser: ## measure the web pages in Chromium
	cd $(browser) && CLTEST_REQUIRE=chromium go test -vet=off -count=1 -timeout=30m -run Measure -v . -measure | grep -E '^(bench:|FAIL|ok|---)'

.PHONY: bench
bench: cluster-up install ## measure everything; ONLY=main measures one area
	ONLY='$(ONLY)' $(if $(root),,sudo --preserve-env=ONLY,IMAGE,SLURM,LONG,PART,BUNDLES,KUBECONFIG,CLTEST_KUBERNETES,CLTEST_APPTAINER,CLTEST_STOCK_CL,CLTEST_STOCK_WORKER,DOCKER_HOST) $(shared)/bin/bench

.PHONY: sim
sim: ## simulate a site with SEEDS=10000 seeds from FIRST=1 on, ARRAYS=1 those with arrays, PACKS=1 those with packs; SEED=17 [ONLY=crash.3] prints the steps of one, LARGE=1 with 2,000 bundles
	@mkdir -p bin; $(build) -o bin/sim ./scripts/sim
	bin/sim $(if $(SEED),-seed $(SEED) $(if $(LARGE),-large,-v) $(if $(ONLY),-only $(ONLY)),-seeds $(or $(SEEDS),10000) -first $(or $(FIRST),1) $(if $(ARRAYS),-arrays) $(if $(PACKS),-packs))

.PHONY: setup
setup: ## install the Debian packages and add the user that are missing
	@scripts/setup

.PHONY: cluster-up
cluster-up: setup ## start the Slurm cluster of this machine, or reuse it
	@scripts/slurm-cluster up

.PHONY: cluster-down
cluster-down: ## stop the Slurm cluster of this machine
	@scripts/slurm-cluster down

.PHONY: site-up
site-up: setup ## start a small real site: machines with kernels of their own, NFS, systemd
	@scripts/site up

.PHONY: site-down
site-down: ## stop that site
	@scripts/site down

.PHONY: kubernetes-up
kubernetes-up: ## build Kubernetes, once, and start a cluster of two nodes, or reuse it
	@scripts/setup kubernetes
	@scripts/kubernetes up

.PHONY: kubernetes-down
kubernetes-down: ## stop that cluster
	@scripts/kubernetes down

.PHONY: azure-tools
azure-tools: ## install Microsoft's programs for tests of Azure Batch, from npm (Node.js 20)
	@scripts/azure-tools up

.PHONY: oidc-provider
oidc-provider: ## install a provider of OpenID Connect for tests, from npm (Node.js 20)
	@scripts/oidc-provider up

.PHONY: azure-transcript
azure-transcript: azure-tools ## print a session of cl-worker-manager azure-batch: 0 to 8 workers in containers and back to 0
	CLTEST_AZURE_TRANSCRIPT=1 CLTEST_REQUIRE=azure,containers CGO_ENABLED=0 go test ./cmd/cl-worker -run TestTranscriptOfAzureBatch -v -timeout=20m

.PHONY: postgres-up
postgres-up: setup ## start the PostgreSQL server for tests, or reuse it
	@scripts/postgres up

.PHONY: postgres-down
postgres-down: ## stop the PostgreSQL server for tests
	@scripts/postgres down

.PHONY: install
install: build
	@scripts/install-shared $(shared)/bin bin/*

.PHONY: clean
clean: ## remove what was built in this clone
	rm -rf bin dist

# The tools are pinned in a module of their own, and built once for a machine.
$(tools):
	@echo "building golangci-lint and the other tools (a minute or two, once)"
	@mkdir -p $(@D); tmp=$$(mktemp -d $@.XXXXXX); chmod 0755 $$tmp; \
	(cd scripts/tools && GOBIN=$$tmp go install -ldflags "-s -w" tool) && \
	{ mv -T $$tmp $@ 2>/dev/null || rm -rf $$tmp; }
