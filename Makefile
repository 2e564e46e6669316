# `make` alone lists the targets. Every target does its own set-up: see tools/setup.
# To add a target: write `## name: what it does` above it, its set-up as prerequisites (below), and .PHONY.
.DEFAULT_GOAL := help
SHELL := /bin/sh
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# If Python may not keep its bytecode, each play first compiles Ansible, which takes most of a second.
unexport PYTHONDONTWRITEBYTECODE

ENGINE := lab/roles/lab_node/files/engine

# Sets variables for the real programs that are built. A variable that is already set, even to nothing, stays.
$(foreach built,$(shell lab/programs/build --env),$(eval export $(built)))

# Set-up, as prerequisites: `system` for the lab, `controller` for plays, `dev` for the tests' tools.
.PHONY: system controller dev
system:
	@tools/setup system
controller:
	@tools/setup venv controller
	@tools/setup collection
dev: controller
	@tools/setup venv dev

.PHONY: help
help:
	@sed -n 's/^## /make /p' $(MAKEFILE_LIST)

## kubernetes: build kubelet, kubeadm, kubectl, the control plane and etcd from pinned Go modules (KUBERNETES_VERSION=1.36)
.PHONY: kubernetes
kubernetes: controller
	@tools/setup programs
	@lab/programs/build kubernetes

## lab: create two throwaway nodes on this machine, provision and verify them
.PHONY: lab
lab: system controller lab-images lab-nodes
	ansible-playbook -i inventories/lab playbooks/site.yml --skip-tags verify
	ansible-playbook -i inventories/lab playbooks/verify.yml
	@echo "The nodes run $(LAB_KUBELET)"

LAB_KUBELET = $(if $(KUBERNETES_BIN_DIR),the kubelet of $(KUBERNETES_BIN_DIR),the stand-in kubelet. To use the real kubelet: make kubernetes && make lab)

# Builds an image for each release in the inventory before the play, because a play is silent while a task runs.
.PHONY: lab-images
lab-images: system
	@lab/roles/lab_node/files/node_image.py $$(sed -n 's/^ *lab_node_release: *\([a-z]*\).*/\1/p' inventories/lab/hosts.yml | sort -u)

# Creates only the nodes, and does not provision them.
.PHONY: lab-nodes
lab-nodes: system controller lab-images
	ansible-playbook -i inventories/lab lab/playbooks/lab_up.yml

## lab-down: destroy the nodes of `make lab`, and keep their images
.PHONY: lab-down
lab-down: controller
	ansible-playbook -i inventories/lab lab/playbooks/lab_down.yml

## lab-clean: lab-down, and remove the images and the lab's state, except that of a kind cluster
.PHONY: lab-clean
lab-clean: lab-down
	@$(ENGINE) images --filter 'reference=localhost/node-devices/*' --format '{{.Repository}}:{{.Tag}}' \
	  | xargs --no-run-if-empty $(ENGINE) image rm
	@[ ! -d .lab ] || find .lab -mindepth 1 -maxdepth 1 ! -name kind.kubeconfig -exec rm -rf {} +
	@# Without this file, role lab_kind would not recognize its cluster, and could never delete it.
	@[ ! -e .lab/kind.kubeconfig ] || echo "lab-clean: .lab/kind.kubeconfig stays, because it belongs to a kind cluster. To delete both: make kind-down"
	@[ ! -d .lab ] || rmdir --ignore-fail-on-non-empty .lab

## kind: create a kind cluster with the plugin as a DaemonSet and three pods that use it
.PHONY: kind
kind: system controller kind-programs
	@lab/roles/lab_kind/files/kind_node_image.py --build
	ansible-playbook lab/playbooks/kind_up.yml
	ansible-playbook -i inventories/kind playbooks/site.yml --skip-tags verify
	ansible-playbook -i inventories/kind playbooks/verify.yml
	ansible-playbook lab/playbooks/kind_pods.yml

.PHONY: kind-programs
kind-programs: system
	@tools/setup programs
	@tools/setup kind
	@lab/programs/build kind
	@lab/programs/build kubernetes kubectl

## kind-down: delete the cluster of `make kind`
.PHONY: kind-down
kind-down: controller kind-programs
	ansible-playbook lab/playbooks/kind_down.yml

## check: run lint and unit tests
.PHONY: check lint unit
check: dev
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint unit
lint:
	ruff check
	ruff format --check
	mypy
	mypy --explicit-package-bases molecule
	MYPYPATH=.ansible/collections mypy --config-file tests/mypy_plugins.ini -p ansible_collections.nodedevices.kubernetes.plugins
	yamllint --strict .
	tools/generate_wire --check
	tools/generate_argument_specs --check
	tools/generate_reference --check
	tools/generate_packaging --check
	tools/check_language
	! git grep -nE '^(<{7}|>{7}) ' # what a merge left
# Two tests for each core, because about half of a test's time is waiting.
unit:
	pytest --numprocesses $$((2 * $$(nproc))) --dist worksteal -k 'not real_api_server' plugin/tests \
	  lab/kubelet_stand_in/tests tests/unit tests/fuzz tests/kubernetes $(addprefix --ignore=,$(FAULTS))

# Slow tests: hundreds of restarts, kills at every step, random inputs, whole plays.
FAULTS := plugin/tests/faults plugin/tests/runtime/configuration/test_toml_edit.py \
  $(addprefix tests/unit/,packaging/bundle/test_locked_wheels.py lab/test_kind.py bench/test_plays.py bench/test_controller.py \
  $(addprefix playbooks/,test_failing_hosts.py test_arguments_of_the_preflight.py) \
  $(addprefix plugins/,module_utils/transaction plugin_utils/fleet/test_fleet_page.py))

.PHONY: faults
faults: dev
	pytest --numprocesses auto $(FAULTS)

# Lints by ansible-lint's production profile. At night also the scenarios, because each of their playbooks takes a second.
.PHONY: lint-ansible lint-scenarios
lint-ansible: dev
	ansible-lint --offline -q --exclude molecule
lint-scenarios: dev
	ansible-lint --offline -q molecule

# A test command is a list of steps, each a target. tests/run runs them, reports which programs the tests used, and fails
# if a step changed this machine.

## test: check the project on this machine: lint, unit tests, docs, the installed collection, scenario default
.PHONY: test
test: system dev
	@tests/run 'make test' $(MAKE) check --beside scenario-default docs docs-test collection

## test-all: run the README's commands, then build the real programs and run all tests with them (ALLOW_STAND_IN=1: without programs that cannot be built; ONLY=STEP)
.PHONY: test-all
test-all: system dev
	@tests/run 'make test-all' $(MAKE) $(if $(ONLY),--only $(ONLY)) newcomer packages programs \
	  --needs-programs scenario-daemonset scenario-dra scenario-api_faults scenario-profiles scenario-kind \
	  scenario-default scenario-extended_resources cdi-judge api-server chart \
	  --beside scenario-upgrade scenario-uninstall scenario-devices scenario-rollback scenario-resilience \
	  scenario-adversary scenario-preflight scenario-drift release-check scenario-airgap \
	  --without-nodes lint-ansible faults image-test api-server cdi-judge chart

# Runs the README's commands in a shell that knows no built program and no cache.
.PHONY: newcomer
newcomer:
	@tests/newcomer

# Installs the system packages that `programs` and scenario `kind` need.
.PHONY: packages
packages: system
	@tools/setup programs
	@tools/setup kind

# Builds every real program that `make test-all` needs.
.PHONY: programs
programs: kubernetes
	@lab/programs/build kubernetes-1.36 kubelet
	@lab/programs/build containerd-2.4
	@lab/programs/build nvidia-container-toolkit
	@lab/programs/build cdi-judge
	@lab/programs/build cdi-judge-0.8
	@lab/programs/build kind
	@lab/programs/build helm

## nightly: run the longest tests, for hours (ONLY=STEP); docs/testing.md lists the steps
.PHONY: nightly
nightly: system dev
	@tests/run 'make nightly' $(MAKE) $(if $(ONLY),--only $(ONLY)) packages programs scenario-cookbook \
	  scenario-runtimes scenario-operator_day scenario-dra_pods scenario-migration journeys lint-scenarios matrix fuzz \
	  soak sanity runtimes-all oldest-python oldest-python-faults scale profiles-old-kubelet dra-old-kubelets \
	  migration-old-kubelet migration-daemonset chart-helm-old alert-rules

# Tests the starting configurations on every pinned containerd.
.PHONY: runtimes-all
runtimes-all: system dev
	@set -e; for minor in 1.7 2.2 2.3 2.4; do built=$$built:$$(lab/programs/build containerd-$$minor); done; \
	  CONTAINERD_BIN_DIR=$$built pytest tests/runtimes

# Tests profiles with the last Kubernetes minor in which pods do not overlap.
.PHONY: profiles-old-kubelet
profiles-old-kubelet: system dev
	@built=$$(KUBERNETES_VERSION=1.36 lab/programs/build kubernetes) || exit; \
	  KUBERNETES_BIN_DIR=$$built $(MAKE) --no-print-directory scenario-profiles

# Tests DRA with the first Kubernetes minor that has its API, and with the last one in which pods do not overlap.
.PHONY: dra-old-kubelets
dra-old-kubelets: system dev
	@for minor in 1.34 1.36; do \
	  built=$$(KUBERNETES_VERSION=$$minor lab/programs/build kubernetes) && \
	  KUBERNETES_BIN_DIR=$$built $(MAKE) --no-print-directory scenario-dra scenario-dra_pods || exit; done

# Moves nodes to DRA and back with the first Kubernetes minor that has limits by DeviceClasses, and with a DaemonSet.
.PHONY: migration-old-kubelet migration-daemonset
migration-old-kubelet: system dev
	@built=$$(KUBERNETES_VERSION=1.36 lab/programs/build kubernetes) || exit; \
	  KUBERNETES_BIN_DIR=$$built $(MAKE) --no-print-directory scenario-migration
migration-daemonset: system dev
	@MIGRATION_MODE=daemonset $(MAKE) --no-print-directory scenario-migration

# Runs the plugin's unit tests as on the oldest node: Debian bullseye, Python 3.9. The faults have a target of their own.
.PHONY: oldest-python oldest-python-faults
oldest-python: system dev
	@tests/oldest_python plugin/tests lab/kubelet_stand_in/tests \
	  tests/unit/plugins/module_utils/transaction/test_transaction.py --ignore=plugin/tests/faults
oldest-python-faults: system dev
	@tests/oldest_python plugin/tests/faults

.PHONY: collection
collection: dev
	pytest tests/collection

# Runs ansible-test's sanity tests on the installed collection. To run one test: `tests/sanity/run --test pylint`.
.PHONY: sanity
sanity: dev
	@tests/sanity/run

# Tests the use of the Kubernetes API with a real API server.
.PHONY: api-server
api-server: dev
	pytest tests/kubernetes -k real_api_server

# Tests the Helm chart with the real Helm, also on a real API server; at night with Helm 3 as well.
.PHONY: chart chart-helm-old
chart: dev
	@built="$${HELM_BIN_DIR:-$$(lab/programs/build helm)}" || exit; HELM_BIN_DIR="$$built" pytest tests/chart
chart-helm-old: dev
	@built="$$(lab/programs/build helm-3)" || exit; HELM_BIN_DIR="$$built" pytest tests/chart

# Lets Prometheus' own program check the alert rules.
.PHONY: alert-rules
alert-rules: system
	@built="$$(lab/programs/build promtool)" || exit; "$$built/promtool" check rules packaging/chart/files/alert-rules.yaml

# Tests starting configurations on every release's containerd, and on those of CONTAINERD_BIN_DIR (DIR:DIR), else 2.4.
.PHONY: runtimes
runtimes: system dev
	@more="$${CONTAINERD_BIN_DIR:-$$(lab/programs/build containerd-2.4)}" || [ "$(ALLOW_STAND_IN)" = 1 ] || exit; \
	  CONTAINERD_BIN_DIR="$$more" pytest tests/runtimes

# Runs one molecule scenario: make scenario-default. Run at most two at once, because nodes share few inotify instances.
scenario-kind: kind-programs
scenario-%: system dev lab-images
	molecule test --scenario-name $* --no-command-borders

## release: build the files of a release in dist/ (RELEASE_TAG=v0.1.0, IMAGE=name)
.PHONY: release
release: system controller
	@packaging/release/build $(if $(RELEASE_TAG),--tag '$(RELEASE_TAG)') $(if $(IMAGE),--image '$(IMAGE)')

## release-check: build a release, and install it in a container without a checkout
.PHONY: release-check
release-check: dev lab-images release
	@tests/release/check

# Goes the ways of new users with a release, each in a container without a checkout: make journeys WAYS='claim nvidia'
.PHONY: journeys
journeys: dev lab-images release
	@kubernetes=$$(lab/programs/build kubernetes) && helm=$$(lab/programs/build helm) && \
	  nvidia=$$(lab/programs/build nvidia-container-toolkit) && export KUBERNETES_BIN_DIR=$$kubernetes && \
	  HELM_BIN_DIR=$$helm NVIDIA_BIN_DIR=$$nvidia tests/release/journeys $(WAYS)

## image: build the plugin's container image, and an archive of it in .image/ (IMAGE_BASE=NAME@sha256:..., IMAGE_ARCH=arm64, IMAGE=name)
.PHONY: image
image: system controller
	@packaging/image/build $(if $(IMAGE),--name '$(IMAGE)') $(if $(IMAGE_BASE),--base '$(IMAGE_BASE)') \
	  $(if $(IMAGE_ARCH),--arch '$(IMAGE_ARCH)')

## bundle: build one archive for a controller and nodes without internet, in .bundle/ (NODE_PYTHON=3.11,3.13 NODE_ARCH=amd64)
# All options: docs/airgap.md. Without an image, the build needs no system packages.
.PHONY: bundle
bundle: $(if $(filter no,$(BUNDLE_IMAGE)),,system) controller
	@packaging/bundle/build --node-python '$(NODE_PYTHON)' --node-arch '$(NODE_ARCH)' \
	  --controller-python '$(CONTROLLER_PYTHON)' --controller-arch '$(CONTROLLER_ARCH)' \
	  --image '$(BUNDLE_IMAGE)' --image-base '$(IMAGE_BASE)' --image-name '$(IMAGE)' \
	  $(if $(BUNDLE_DIR),--output '$(BUNDLE_DIR)')

# Tests the image on Debian's base: builds it twice, runs it confined, and imports it into every release's containerd.
.PHONY: image-test
image-test: system dev
	pytest tests/image

## docs: build README.md, docs/ and the roles' READMEs as a site in .site/, and fail on a broken link or anchor
.PHONY: docs
docs: dev
	sphinx-build --quiet --fresh-env --fail-on-warning --jobs auto --conf-dir docs . .site

## pictures: record docs/session.svg and docs/fleet.svg from a new lab, and destroy its nodes before and after
.PHONY: pictures
pictures: dev
	@tools/record_pictures

# Tests that a broken page fails the build.
.PHONY: docs-test
docs-test: dev
	pytest tests/site

## matrix: test each pinned kubelet on each containerd, from each ansible-core; resumes, and writes .bench/matrix.json
.PHONY: matrix
matrix: system controller
	@tests/matrix/run

# Tests that we read CDI specs as two versions of the CDI reference library do: acceptance, names and edits.
.PHONY: cdi-judge
cdi-judge: dev
	@lab/programs/build cdi-judge >/dev/null
	@lab/programs/build cdi-judge-0.8 >/dev/null
	pytest tests/cdi_judge

## bench: measure the plugin's speed, memory and CPU; prints a table, and writes .bench/latest.json
.PHONY: bench
bench: dev
	PYTHONPATH=plugin:lab/kubelet_stand_in:tests/kubernetes tests/machine.py python -m bench

## scale: run the playbooks for a profile of 5000 nodes and for 1000 hosts, and 200 DRA drivers; prints tables
.PHONY: scale
scale: system dev
	@tools/setup programs
	@set -e; KUBERNETES_BIN_DIR=$$(lab/programs/build kubernetes); export KUBERNETES_BIN_DIR; \
	  export PYTHONPATH=plugin:lab/kubelet_stand_in:tests/kubernetes; \
	  tests/machine.py python -m bench.scale; tests/machine.py python -m bench.publishers

## soak: cause random faults for SOAK_MINUTES (default 60); prints a line each minute
.PHONY: soak
SOAK_MINUTES ?= 60
soak: dev
	PYTHONPATH=plugin:lab/kubelet_stand_in tests/machine.py python -m bench.soak $(SOAK_MINUTES)

## fuzz: fuzz every parser of foreign input, guided by coverage, for FUZZ_MINUTES (default 10)
.PHONY: fuzz
FUZZ_MINUTES ?= 10
fuzz: dev
	@tools/setup venv fuzz
	@tests/fuzz/run $(FUZZ_MINUTES)

## mutants: make MUTANTS (default 200) random changes to the product, drawn by SEED, and check that a test fails; resumes
.PHONY: mutants
MUTANTS ?= 200
SEED ?= 1
mutants: dev
	@tools/setup venv mutants
	@tests/mutants/run $(MUTANTS) $(SEED)

## lock: update the locked requirements
.PHONY: lock
lock:
	@tools/setup lock
