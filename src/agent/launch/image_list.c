// What users hold of images on this node: each user's folder has a file that acequia-box writes there (model/image.h).
// They are looked at now and then, and what they say is reported when it has changed. A file is a user's own and may
// hold anything: it is read up to a limit, never followed, and never waited for.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "launcher_state.h"
#include "model/image.h"

enum { LOOK_EVERY_MS = 1000, FOLDERS_MAX = 4096 };

static void read_user(int folder, const char *name, struct arena *a, struct message_node_images *out) {
    cleanup_buf struct buf text = {0};
    struct node_image_list list;
    char path[32];
    struct stat st;
    uint32_t uid;
    snprintf(path, sizeof path, "%.16s/index", name);
    cleanup_close int fd =
        parse_u32(name, &uid) < 0 ? -1 : openat(folder, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != uid)
        return;
    ssize_t n;
    while (text.len < IMAGE_INDEX_MAX && (n = read(fd, buf_reserve(&text, 4096), 4096)) > 0)
        text.len += (size_t)n;
    image_index_parse(buf_str(&text), text.len, uid, a, &list);
    for (uint32_t i = 0; i < list.len && out->images.len < IMAGES_PER_NODE; i++)
        out->images.at[out->images.len++] = list.at[i];
}

// Changes when one of the files does.
static uint64_t mark_of(int folder, const char *name, uint64_t mark) {
    char path[32];
    struct stat st;
    snprintf(path, sizeof path, "%.16s/index", name);
    if (fstatat(folder, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return mark;
    const uint64_t parts[] = {st.st_ino, (uint64_t)st.st_mtim.tv_sec, (uint64_t)st.st_mtim.tv_nsec,
                              (uint64_t)st.st_size};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        mark = (mark ^ parts[i]) * 1099511628211u;
    return mark;
}

void launcher_image_list_look(struct launcher *l, int64_t now_ms) {
    cleanup_arena struct arena a = {0};
    struct message_node_images m = {0};
    const char *folder = l->node->request_node.image_folder;
    uint64_t mark = 14695981039346656037u;
    int users = 0;
    if (now_ms < l->image_list_ms || !folder)
        return;
    l->image_list_ms = now_ms + LOOK_EVERY_MS;
    DIR *d = opendir(folder);
    for (struct dirent *ent; d && users < FOLDERS_MAX && (ent = readdir(d)); users++)
        mark = mark_of(dirfd(d), ent->d_name, mark);
    if (mark != l->image_list_mark) {
        m.images.at = arena_alloc(&a, IMAGES_PER_NODE * sizeof *m.images.at);
        users = 0;
        if (d)
            rewinddir(d);
        for (struct dirent *ent; d && users < FOLDERS_MAX && (ent = readdir(d)); users++)
            read_user(dirfd(d), ent->d_name, &a, &m);
        l->image_list_mark = mark;
        agent_logic_images(l->node->logic, &m);
        launcher_execute(l);
    }
    if (d)
        closedir(d);
}
