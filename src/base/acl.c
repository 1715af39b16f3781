// Owns the kernel's form of an access control list, the value of an extended attribute.
#include "base/acl.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

enum { VERSION = 2, USER_OBJ = 1, USER = 2, GROUP_OBJ = 4, MASK = 16, OTHER = 32 };
static const char attribute[] = "system.posix_acl_access";

struct acl_entry {
    uint16_t tag, permissions;
    uint32_t id;  // of a user; else all bits set
};
struct acl_file {
    uint32_t version;
    struct acl_entry entry[ACL_USERS_MAX + 4];
};
static_assert(sizeof(struct acl_entry) == 8, "as the kernel reads it");

static struct acl_entry entry(uint16_t tag, unsigned permissions, uint32_t id) {
    return (struct acl_entry){htole16(tag), htole16((uint16_t)permissions), htole32(id)};
}

// The users named so far, in ascending order as the kernel keeps them.
static int read_users(int fd, uint32_t users[ACL_USERS_MAX], unsigned *permissions) {
    struct acl_file old;
    ssize_t n = fgetxattr(fd, attribute, &old, sizeof old);
    int count = 0;
    if (n < 0)
        return errno == ENODATA ? 0 : errno == ERANGE ? -E2BIG : -errno;
    for (size_t i = 0; sizeof old.version + (i + 1) * sizeof *old.entry <= (size_t)n; i++)
        if (le16toh(old.entry[i].tag) == USER && count < ACL_USERS_MAX) {
            users[count++] = le32toh(old.entry[i].id);
            *permissions |= le16toh(old.entry[i].permissions);
        }
    return count;
}

int acl_allow_user(int fd, uid_t uid, unsigned permissions) {
    uint32_t users[ACL_USERS_MAX + 1];
    struct acl_file acl = {.version = htole32(VERSION)};
    struct stat st;
    int at = 0, count = read_users(fd, users, &permissions);
    if (count < 0)
        return count;
    while (at < count && users[at] < uid)
        at++;
    if (at == count || users[at] != uid) {
        if (count == ACL_USERS_MAX)
            return -E2BIG;
        memmove(users + at + 1, users + at, (size_t)(count - at) * sizeof *users);
        users[at] = uid;
        count++;
    }
    if (fstat(fd, &st) < 0)
        return -errno;
    size_t n = 0;
    acl.entry[n++] = entry(USER_OBJ, st.st_mode >> 6 & 7, UINT32_MAX);
    for (int i = 0; i < count; i++)
        acl.entry[n++] = entry(USER, permissions, users[i]);
    acl.entry[n++] = entry(GROUP_OBJ, 0, UINT32_MAX);
    acl.entry[n++] = entry(MASK, permissions, UINT32_MAX);
    acl.entry[n++] = entry(OTHER, 0, UINT32_MAX);
    size_t size = sizeof acl.version + n * sizeof *acl.entry;
    return fsetxattr(fd, attribute, &acl, size, 0) < 0 ? -errno : 0;
}

// --- folders ---

static const char inherited[] = "system.posix_acl_default";

struct named_user {
    uint32_t uid;
    unsigned permissions;
};

static int name_user(struct named_user *at, int count, uint32_t uid, unsigned permissions) {
    int i = 0;
    while (i < count && at[i].uid < uid)
        i++;
    if (i < count && at[i].uid == uid) {
        at[i].permissions |= permissions;
        return count;
    }
    if (count == ACL_USERS_MAX)
        return -E2BIG;
    memmove(at + i + 1, at + i, (size_t)(count - i) * sizeof *at);
    at[i] = (struct named_user){uid, permissions};
    return count + 1;
}

int acl_allow_in_folder(int fd, uid_t owner, uid_t uid, unsigned permissions) {
    struct named_user users[ACL_USERS_MAX];
    struct acl_file old, acl = {.version = htole32(VERSION)};
    struct stat st;
    int count = 0;
    if (fstat(fd, &st) < 0)
        return -errno;
    // With a list the mode's bits of the group are the mask: the group's own are in the list.
    unsigned group = st.st_mode >> 3 & 7;
    ssize_t len = fgetxattr(fd, attribute, &old, sizeof old);
    if (len < 0 && errno != ENODATA)
        return errno == ERANGE ? -E2BIG : -errno;
    for (size_t i = 0; len > 0 && sizeof old.version + (i + 1) * sizeof *old.entry <= (size_t)len; i++) {
        uint16_t tag = le16toh(old.entry[i].tag);
        if (tag == GROUP_OBJ)
            group = le16toh(old.entry[i].permissions);
        if (tag == USER)
            count = name_user(users, count, le32toh(old.entry[i].id), le16toh(old.entry[i].permissions));
        if (count < 0)
            return count;
    }
    if ((count = name_user(users, count, owner, ACL_READ | ACL_WRITE | ACL_EXECUTE)) < 0 ||
        (count = name_user(users, count, uid, permissions)) < 0)
        return count;
    size_t n = 0;
    acl.entry[n++] = entry(USER_OBJ, st.st_mode >> 6 & 7, UINT32_MAX);
    for (int i = 0; i < count; i++)
        acl.entry[n++] = entry(USER, users[i].permissions, users[i].uid);
    acl.entry[n++] = entry(GROUP_OBJ, group, UINT32_MAX);
    acl.entry[n++] = entry(MASK, ACL_READ | ACL_WRITE | ACL_EXECUTE, UINT32_MAX);
    acl.entry[n++] = entry(OTHER, st.st_mode & 7, UINT32_MAX);
    size_t size = sizeof acl.version + n * sizeof *acl.entry;
    if (fsetxattr(fd, attribute, &acl, size, 0) < 0 || fsetxattr(fd, inherited, &acl, size, 0) < 0)
        return -errno;
    return 0;
}
