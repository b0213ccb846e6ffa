#!/bin/bash
# Installs the Debian packages that building and testing need, as far as they are
# missing, when it may; otherwise names them and goes on: whatever needs one then
# skips itself and says so. Changes nothing, and takes no time, when all is there.
#
#   scripts/setup.sh            what make dev and make test need
#   scripts/setup.sh generate   what make generate needs as well
#   scripts/setup.sh bench      what make bench-l7 and make bench-kv need as well
#
# What is installed that is a service stays off.
set -euo pipefail

# need WHAT PACKAGE WHY: WHAT is a command, or a file if it begins with a slash.
missing=()
need() {
	if [[ $1 == /* ]]; then
		[[ -e $1 ]] && return
	else
		PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null && return
	fi
	missing+=("$2")
	echo "setup: $2 is missing: $3"
}

if ! command -v go >/dev/null; then
	echo "setup: no go command: install Go $(sed -n 's/^go //p' go.mod) or newer from https://go.dev/dl and put it into PATH" >&2
	exit 1
fi

need /etc/ssl/certs/ca-certificates.crt ca-certificates "go downloads modules over https"
need ip iproute2 "test/netns and test/e2e make network namespaces with it"
need nft nftables "test/netns cuts links with it"
need iptables-legacy iptables "plugins/iptables makes its rules with it"
need conntrack conntrack "plugins/iptables is tested with it"
need gcc gcc "the race detector needs cgo"
need /usr/include/stdlib.h libc6-dev "the race detector needs cgo"
need clang clang "bpf tests that its objects are what its sources compile to"
need llvm-strip llvm "bpf strips its objects"
need /usr/include/bpf/bpf_helpers.h libbpf-dev "the sources of bpf include it"
need /usr/bin/python3 python3 "test/e2e runs the data plane in Python"
need /usr/lib/python3/dist-packages/grpc python3-grpcio "test/e2e runs the data plane in Python"
need /usr/lib/python3/dist-packages/google/protobuf python3-protobuf "test/e2e runs the data plane in Python"
need etcdctl etcd-client "test/interop runs it on Fairlead"
need etcd etcd-server "test/interop compares with it, and test/e2e tests its own judges with it"
need strace strace "test/e2e sees with it what is synced"
need mkfs.ext4 e2fsprogs "test/e2e makes disks that are full or hang"
need fsfreeze util-linux "test/e2e makes disks that hang"
if [[ ${1:-} == generate ]]; then
	need protoc protobuf-compiler "make generate compiles the .proto files"
	need /usr/include/google/protobuf/timestamp.proto libprotobuf-dev "the .proto files import it"
fi
if [[ ${1:-} == bench ]]; then
	need nginx nginx "make bench-l7 measures beside it"
	need haproxy haproxy "make bench-l7 measures beside it"
fi

((${#missing[@]})) || exit 0

# Packages of servers start them and let them start at boot, nginx on port 80 of
# every address. Only their programs are wanted here. service_of PACKAGE is empty
# for what is no server.
service_of() {
	case $1 in
	nginx | haproxy) echo "$1" ;;
	etcd-server) echo etcd ;;
	esac
}
policy=/usr/sbin/policy-rc.d
hold_services() {
	[[ ! -e $policy ]] || return 0
	trap 'rm -f "$log" "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
}
disable_services() {
	local package service
	for package in "${missing[@]}"; do
		service=$(service_of "$package")
		[[ -n $service ]] || continue
		if command -v systemctl >/dev/null; then
			systemctl disable --quiet "$service" >>"$log" 2>&1
		else
			update-rc.d "$service" disable >>"$log" 2>&1
		fi || echo "setup: the service $service may start at boot: disable it" >&2
		service "$service" stop >>"$log" 2>&1 || true # it does not run, unless a policy was there that lets it
	done
}

if ((EUID != 0)); then
	echo "setup: not root, so nothing was installed; as root: apt-get install ${missing[*]}"
elif ! command -v apt-get >/dev/null; then
	echo "setup: no apt-get here, so nothing was installed; the packages are named as in Debian: ${missing[*]}"
else
	export DEBIAN_FRONTEND=noninteractive
	echo "setup: installing ${missing[*]}"
	log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	hold_services
	if ! { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
		cat "$log" >&2
		echo "setup: apt-get could not install ${missing[*]}; going on without" >&2
	else
		disable_services
	fi
fi
