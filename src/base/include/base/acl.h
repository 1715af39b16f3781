// Access control lists of files: lets single users read or write a file that belongs to somebody else.
#pragma once
#include <sys/types.h>

enum { ACL_EXECUTE = 1, ACL_WRITE = 2, ACL_READ = 4 };
enum { ACL_USERS_MAX = 128 };

// Adds the user to those who may use the file like this. The owning group and all others get nothing.
// -EOPNOTSUPP: the file system has no such lists; -E2BIG: too many users already.
int acl_allow_user(int fd, uid_t uid, unsigned permissions);
// Lets the user use the folder and what is made in it from now on, beside its owner, who keeps that for what others
// make there, and beside whoever may already. -EOPNOTSUPP, -E2BIG as above.
int acl_allow_in_folder(int fd, uid_t owner, uid_t uid, unsigned permissions);
