// Included before every file of the shadow libraries: they are loaded into programs of container images,
// whose C library may be years older than the one we are built with. So functions that got new versions
// when they moved into libc.so.6 are asked for by their first, which every later library keeps, and
// stat and fstat, which became functions of their own only then, are asked of the kernel.
#pragma once
#ifndef __ASSEMBLER__
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))
#ifdef __x86_64__
#define OLD_LIBC "GLIBC_2.2.5"
#else
#define OLD_LIBC "GLIBC_2.17"
#endif
#define OLD(name, as) __asm__(".symver " #name "," #as "@" OLD_LIBC)

OLD(dlopen, dlopen);
OLD(dlsym, dlsym);
OLD(dlclose, dlclose);
OLD(dladdr, dladdr);
OLD(pthread_create, pthread_create);
OLD(pthread_attr_setstacksize, pthread_attr_setstacksize);
OLD(pthread_mutex_trylock, pthread_mutex_trylock);
OLD(pthread_sigmask, pthread_sigmask);
OLD(glob64, glob64);
OLD(fcntl64, fcntl);

// On these machines the kernel's struct is the C library's.
static inline int old_libc_stat(const char *path, struct stat *st) {
    return (int)syscall(SYS_newfstatat, AT_FDCWD, path, st, 0);
}

static inline int old_libc_fstat(int fd, struct stat *st) {
    return (int)syscall(SYS_fstat, fd, st);
}

#define stat(path, st) old_libc_stat(path, st)
#define fstat(fd, st) old_libc_fstat(fd, st)
#endif
#endif
