// Finds the real driver library and points every pass-through slot and hook at it. Names are
// resolved on the handle of the absolute path, so nothing preloaded can stand in between.
#include "forward.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// Marks a shadow library, so that one copy never takes another for the driver.
__attribute__((visibility("default"))) const char acequia_shim_marker = 1;

static const char *const usual[] = {
#if defined(__x86_64__)
    "/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu/nvidia/current",
#elif defined(__aarch64__)
    "/usr/lib/aarch64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu/nvidia/current",
#endif
    "/usr/lib64", "/usr/lib64/nvidia", "/usr/lib", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib",
    "/usr/lib/wsl/lib", "/run/opengl-driver/lib", "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "/run/nvidia/driver/usr/lib64", "/opt/nvidia/lib64",
};

static bool is_self(const char *path) {
    Dl_info own;
    struct stat a, b;
    if (!dladdr(&acequia_shim_marker, &own) || stat(own.dli_fname, &a) < 0 || stat(path, &b) < 0)
        return false;
    return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static void *try_path(const char *path) {
    struct stat st;
    if (path[0] != '/' || stat(path, &st) < 0 || is_self(path))
        return NULL;
    void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    // A handle's search covers its dependencies; a marker in this very library is no copy.
    if (h && dlsym(h, "acequia_shim_marker")) {
        dlclose(h);
        return NULL;
    }
    return h;
}

static void *try_dir(const char *dir, size_t len, const char *soname) {
    char path[PATH_MAX];
    if (!len || snprintf(path, sizeof path, "%.*s/%s", (int)len, dir, soname) >= (int)sizeof path)
        return NULL;
    void *h = try_path(path);
    if (h)
        return h;
    // Where the shadow is mounted over the SONAME, the driver is still there under its version.
    size_t stem = strlen(soname) - strlen(".1");
    if (snprintf(path, sizeof path, "%.*s/%.*s.[0-9]*", (int)len, dir, (int)stem, soname) >=
        (int)sizeof path)
        return NULL;
    glob_t found;
    if (glob(path, 0, NULL, &found) != 0)
        return NULL;
    for (size_t i = found.gl_pathc; i > 0 && !h; i--)
        h = try_path(found.gl_pathv[i - 1]);
    globfree(&found);
    return h;
}

void *shim_real_open(const char *env_name, const char *soname) {
    const char *given = getenv(env_name);
    if (given && *given) {
        void *h = try_path(given);
        if (!h)
            fprintf(stderr, "acequia: %s=%s is not a usable driver library: %s\n", env_name, given,
                    is_self(given) ? "it is the shim itself" : "it cannot be opened");
        return h;
    }
    const char *p = getenv("LD_LIBRARY_PATH");
    while (p && *p) {
        size_t len = strcspn(p, ":;");
        void *h = try_dir(p, len, soname);
        if (h)
            return h;
        p += len + (p[len] != 0);
    }
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        void *h = try_dir(usual[i], strlen(usual[i]), soname);
        if (h)
            return h;
    }
    return NULL;
}

void shim_real_bind(void *real, struct shim_hook *hook, unsigned nhooks, void *missing) {
    for (unsigned i = 0; i < shim_forward_count; i++) {
        void *p = real ? dlsym(real, shim_forward_name[i]) : NULL;
        shim_forward_slot[i] = p ? p : missing;
    }
    for (unsigned i = 0; i < nhooks; i++) {
        void *p = real ? dlsym(real, hook[i].name) : NULL;
        *hook[i].real = p ? p : missing;
    }
}
