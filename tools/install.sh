#!/usr/bin/env bash
# Puts what was built into a tree, or takes it out again. The Makefile calls it and sets the folders.
#   tools/install.sh install BUILD     BUILD: the folder with titan and the libraries
#   tools/install.sh uninstall         removes what an install of the same version and folders has put there
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
: "${VERSION:?run make install}" "${SO_MAJOR:?}" "${prefix:?}" "${bindir:?}" "${libdir:?}" "${includedir:?}" "${pkgconfigdir:?}"
: "${mandir:?}" "${docdir:?}" "${bashdir:?}" "${zshdir:?}" "${fishdir:?}" "${LIBS:?}"
dest=${DESTDIR-}
plugindir=$prefix/lib/titan # where the program looks: ../lib/titan beside its own folder (src/comm/launch.c)

# titan.pc. The libraries that libtitan stands on are needed by a static link only.
pc() {
	cat <<-END
		prefix=$prefix
		libdir=$libdir
		includedir=$includedir

		Name: titan
		Description: training of language models
		Version: $VERSION
		Cflags: -I\${includedir}
		Libs: -L\${libdir} -ltitan
		Libs.private: $LIBS
	END
}

# put MODE SOURCE TARGET; SOURCE - is the standard input
put() {
	install -d "$dest$(dirname "$3")"
	if [ "$2" = - ]; then
		local tmp
		tmp=$(mktemp)
		cat >"$tmp"
		install -m "$1" "$tmp" "$dest$3"
		rm -f "$tmp"
	else
		install -m "$1" "$2" "$dest$3"
	fi
}

do_install() {
	local build=$1 page shell plugin
	put 755 "$build/titan" "$bindir/titan"
	for plugin in "$build"/titan-mpi-*.so; do
		[ ! -e "$plugin" ] || put 644 "$plugin" "$plugindir/${plugin##*/}"
	done
	put 644 include/titan.h "$includedir/titan.h"
	put 644 "$build/libtitan.a" "$libdir/libtitan.a"
	put 755 "$build/libtitan.so.$SO_MAJOR" "$libdir/libtitan.so.$VERSION"
	ln -sfn "libtitan.so.$VERSION" "$dest$libdir/libtitan.so.$SO_MAJOR"
	ln -sfn "libtitan.so.$SO_MAJOR" "$dest$libdir/libtitan.so"
	pc | put 644 - "$pkgconfigdir/titan.pc"
	for page in $("$build/titan" help --man); do
		"$build/titan" help "--man=$page" | put 644 - "$mandir/man${page##*.}/$page"
	done
	for shell in bash zsh fish; do
		"$build/titan" help "--completion=$shell" | put 644 - "$(completion "$shell")"
	done
	for page in README.md LICENSE docs/*.md configs/*.toml examples/*; do
		case $page in
		docs/*) put 644 "$page" "$docdir/${page#docs/}" ;;
		configs/*) put 644 "$page" "$docdir/examples/${page#configs/}" ;;
		*) put 644 "$page" "$docdir/$page" ;;
		esac
	done
}

completion() {
	case $1 in
	bash) echo "$bashdir/titan" ;;
	zsh) echo "$zshdir/_titan" ;;
	fish) echo "$fishdir/titan.fish" ;;
	esac
}

# Names of its own only, and folders of its own only where they are empty.
do_uninstall() {
	rm -f "$dest$bindir/titan" "$dest$plugindir"/titan-mpi-*.so \
		"$dest$includedir/titan.h" "$dest$libdir/libtitan.a" "$dest$libdir/libtitan.so.$VERSION" \
		"$dest$libdir/libtitan.so.$SO_MAJOR" "$dest$libdir/libtitan.so" "$dest$pkgconfigdir/titan.pc" \
		"$dest$mandir"/man1/titan.1 "$dest$mandir"/man1/titan-*.1 "$dest$mandir"/man5/titan.toml.5 \
		"$dest$(completion bash)" "$dest$(completion zsh)" "$dest$(completion fish)" \
		"$dest$docdir"/*.md "$dest$docdir"/LICENSE "$dest$docdir"/examples/*.toml "$dest$docdir"/examples/*.c
	rmdir "$dest$plugindir" "$dest$docdir/examples" "$dest$docdir" 2>/dev/null || true
}

case "${1-}" in
install) do_install "${2:?the build folder}" ;;
uninstall) do_uninstall ;;
*) echo "usage: tools/install.sh install BUILD | uninstall" >&2; exit 2 ;;
esac
