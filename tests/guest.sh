# Functions that make a guest for QEMU: the distribution's kernel, and an initramfs of its packages. To be sourced, with NAME set to what
# this is for, modules to the kernel modules that are loaded and tools to the programs that are there.

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
    want nbd-client nbd-client
}

# Packages, unpacked but not installed: this machine stays as it is.
unpack() { # directory, packages...
    local directory=$1 deb
    shift
    echo "$NAME: unpacking $*" >&2
    "${as_root[@]}" apt-get update -qq
    mkdir -p "$directory/packages"
    (cd "$directory/packages" && apt-get download -qq -o APT::Sandbox::User=root "$@")
    for deb in "$directory"/packages/*.deb; do dpkg -x "$deb" "$directory"; done
    rm -r "$directory/packages"
}

# The distribution's kernel.
kernel() { # directory
    local package
    "${as_root[@]}" apt-get update -qq
    package=$(apt-cache depends linux-image-amd64 | awk '$1 == "Depends:" && $2 ~ /^linux-image-[0-9]/ { print $2 }')
    [ -n "$package" ] || { echo "$NAME: apt knows no kernel linux-image-amd64; this needs Debian on amd64" >&2; exit 1; }
    unpack "$1" "$package"
    depmod -b "$1" "${package#linux-image-}"
    cp "$1/boot/vmlinuz-${package#linux-image-}" "$1/vmlinuz"
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
        cp "$file" "$2/modules/"
        basename "$file" >>"$2/modules/order"
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
