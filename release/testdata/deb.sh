#!/bin/bash
# Installs the .deb beside it in a Debian guest, uses what it brings, removes
# it again. What it prints last is "done"; release_test.go waits for that.
set -euo pipefail
fail() { echo "deb: $*" >&2; exit 1; }
files() { find / -xdev -path /var/lib/dpkg -prune -o -path /var/log -prune -o -print | sort; }

# The guest's image leaves out manuals to be small; a Debian does not.
rm -f /etc/dpkg/dpkg.cfg.d/*
files >/tmp/before
dpkg --install ./*.deb
dpkg --verify seine

[[ $(seine version) == "seine $VERSION" ]] || fail "$(seine version) is not $VERSION"
seine doctor >/tmp/doctor
tools=$(seine list | awk '{ print $2 }')
[[ $tools == *tcplife* ]] || fail "no tcplife among $tools"
for tool in $tools; do
	grep -q "^$tool: yes$" /tmp/doctor || fail "doctor: $(grep "^$tool:" /tmp/doctor)"
done

# Sessions on the loopback device: seven, with a server for DNS over TCP.
dnsmasq --no-daemon --no-resolv --no-hosts --port=5353 --listen-address=127.0.0.1 --bind-interfaces 2>/dev/null &
until (exec 3<>/dev/tcp/127.0.0.1/5353) 2>/dev/null; do sleep 0.1; done
exec 4< <(exec seine tcplife --rport 5353 -n 7 -o json 2>&1 >/tmp/rows)
while read -r line <&4 && [[ $line != "seine: ready" ]]; do :; done
for _ in 1 2 3 4 5 6 7; do (exec 3<>/dev/tcp/127.0.0.1/5353); done
while read -r line <&4; do last=$line; done
[[ ${last-} == "seine: 7 rows, 0 lost, "* ]] || fail "the last line is ${last-}"
n=$(grep -c '"comm":"deb.sh".*"raddr":"127.0.0.1".*"rport":5353' /tmp/rows) || true
[[ $n == 7 ]] || fail "$n rows of 7: $(head -1 /tmp/rows)"

zcat /usr/share/man/man8/seine-tcplife.8.gz | grep -q "TCP sessions with lifespan and bytes" || fail "no man page of tcplife"
source /usr/share/bash-completion/completions/seine
complete -p seine >/dev/null
grep -q '^#compdef seine' /usr/share/zsh/vendor-completions/_seine
grep -q '^complete -c seine' /usr/share/fish/vendor_completions.d/seine.fish
[[ $(seine __complete tcplif 2>/dev/null) == tcplife* ]] || fail "tcplif is not completed"

kill %1
dpkg --remove seine
files | diff /tmp/before - || fail "not as it was before"
! dpkg-query --status seine 2>/dev/null || fail "dpkg still knows it"
echo "done"
