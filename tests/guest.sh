# Functions that make a guest for QEMU: the distribution's kernel, and an initramfs of its packages. To be sourced, with NAME set to what
# this is for, modules to the kernel modules that are loaded and tools to the programs that are there; and suite to the suite of Debian that the
# kernel comes from, if not from this system's.

PATH=$PATH:/usr/sbin:/sbin
as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)

install() {
    echo "$NAME: installing $* with apt-get" >&2
    "${as_root[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# Installs a package unless there is the program that is wanted of it.
want() { # program, package
    command -v "$1" >/dev/null || install "$2"
}

# What every guest needs.
want_guest() {
    want qemu-system-x86_64 qemu-system-x86
    command -v busybox >/dev/null && ! ldd "$(command -v busybox)" >/dev/null 2>&1 || install busybox-static
    want depmod kmod
    want cpio cpio
    want xz xz-utils
    want nbd-client nbd-client
}

# Packages, unpacked but not installed: this machine stays as it is.
unpack() { # directory, packages...
    local directory=$1 deb
    shift
    echo "$NAME: unpacking $*" >&2
    "${as_root[@]}" apt-get "${of_suite[@]}" update -qq
    mkdir -p "$directory/packages"
    (cd "$directory/packages" && apt-get "${of_suite[@]}" download -qq -o APT::Sandbox::User=root "$@")
    for deb in "$directory"/packages/*.deb; do dpkg -x "$deb" "$directory"; done
    rm -r "$directory/packages"
}

# Has apt look at the packages of a suite alone, and keep what it knows of them in a directory, so that this system's apt learns nothing of it.
of_suite=()
look_at() { # suite, directory
    mkdir -p "$2"/{state/lists/partial,cache/archives/partial}
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $1 main" >"$2/sources.list"
    of_suite=(-o "Dir::Etc::sourcelist=$2/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null
        -o APT::Sandbox::User=root -o "Dir::State=$2/state" -o "Dir::Cache=$2/cache" -o Dir::State::status=/var/lib/dpkg/status)
}

# The distribution's kernel.
kernel() { # directory
    local package
    [ -z "${suite:-}" ] || look_at "$suite" "$1/apt"
    "${as_root[@]}" apt-get "${of_suite[@]}" update -qq
    package=$(apt-cache "${of_suite[@]}" depends linux-image-amd64 | awk '$1 == "Depends:" && $2 ~ /^linux-image-[0-9]/ { print $2 }')
    [ -n "$package" ] || { echo "$NAME: apt knows no kernel linux-image-amd64; this needs Debian on amd64" >&2; exit 1; }
    # Later releases have the kernel and its modules in packages of their own.
    unpack "$1" "$package" $(apt-cache "${of_suite[@]}" depends "$package" | awk -v release="${package#linux-image-}" '$1 == "Depends:" && index($2, release) { print $2 }')
    # Where later releases have the modules.
    [ -d "$1/lib" ] || ln -s usr/lib "$1/lib"
    depmod -b "$1" "${package#linux-image-}"
    cp "$(ls "$1/boot/vmlinuz-"* "$1"/lib/modules/*/vmlinuz 2>/dev/null | head -n 1)" "$1/vmlinuz"
}

# Modules in the order in which they are loaded, and programs with their libraries.
root() { # the kernel's directory, directory
    local release file
    release=$(ls "$1/lib/modules")
    mkdir -p "$2"/{bin,modules}
    cp "$(command -v busybox)" "$2/bin/"
    for module in "${modules[@]}"; do
        modprobe -d "$1" -S "$release" --show-depends "$module"
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
        if [ "${file%.xz}" = "$file" ]; then cp "$file" "$2/modules/"; else xz -dc "$file" >"$2/modules/$(basename "${file%.xz}")"; fi
        basename "${file%.xz}" >>"$2/modules/order"
    done
    for tool in "${tools[@]}"; do
        file=$(command -v "$tool")
        cp -L "$file" "$2/bin/$tool"
        libraries "$file" "$2"
    done
}

# Copies the shared libraries of a program to where it looks for them.
libraries() { # program, directory
    ldd "$1" | grep -o '/[^ ]*' | while read -r library; do
        mkdir -p "$2$(dirname "$library")"
        cp -Lu "$library" "$2$library"
    done
}

# The program under test, built from here or named by FLASHWISE_BINARY, which is set to it.
built() { # profile
    [ -z "${FLASHWISE_BINARY:-}" ] || return 0
    cargo build --quiet --profile "$1" -p flashwise --bin flashwise
    FLASHWISE_BINARY=target/${1/#dev/debug}/flashwise
}

# Copies it, with its libraries.
flashwise() { # directory, profile
    built "$2"
    mkdir -p "$1/bin"
    strip -o "$1/bin/flashwise" "$FLASHWISE_BINARY"
    libraries "$FLASHWISE_BINARY" "$1"
}

# An archive of a directory, as kernels unpack them; one after the other, they are unpacked one over the other. An emulated processor takes long
# for what is compressed.
archive() { (cd "$1" && find . -mindepth 1 | cpio --create --format=newc --owner=0:0 --quiet); }

# Makes vmlinuz and tools.img in a directory, unless they are there and newer than the scripts.
guest() { # directory, scripts...
    local directory=$1 script work
    shift
    mkdir -p "$directory"
    for script in "$@" ''; do
        [ -n "$script" ] || return 0
        [ ! "$script" -nt "$directory/tools.img" ] || break
    done
    work=$(mktemp -d)
    kernel "$work/kernel"
    root "$work/kernel" "$work/root"
    cp "$work/kernel/vmlinuz" "$directory/vmlinuz"
    archive "$work/root" >"$directory/tools.img"
    rm -rf "$work"
}
