// Owns the question whether a file system keeps project quotas.
#include "base/quota.h"

#include <linux/dqblk_xfs.h>
#include <stdint.h>
#include <sys/quota.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PRJQUOTA
#define PRJQUOTA 2
#endif

bool quota_enforced(int fd) {
    struct fs_quota_statv state = {.qs_version = FS_QSTATV_VERSION1};
    return syscall(SYS_quotactl_fd, fd, QCMD(Q_XGETQSTATV, PRJQUOTA), 0, &state) == 0 &&
           (state.qs_flags & FS_QUOTA_PDQ_ENFD);
}
