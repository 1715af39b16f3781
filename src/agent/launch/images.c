// Attempts in containers whose image is being fetched: the controller is told when that begins and when it is over, and
// again after every reconnect, so that it is shown as it is. An image that is ready at once is not worth a message.
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "launcher_state.h"
#include "base/cleanup.h"
#include "base/text.h"

enum { LOOKS_BEFORE_TOLD = 2 };  // ticks: entering an image that is there takes a moment as well

// Until it becomes the job's program, the first process is the one that prepares the image.
bool launcher_image_preparing(struct launcher *l, uint64_t id, uint32_t attempt, struct spool_status *s) {
    char path[64], name[32] = "";
    if (!l->node->node.containers || spool_read_status(l->node->spool_fd, id, attempt, 0, s) < 0 ||
        s->first_pid <= 0)
        return false;
    snprintf(path, sizeof path, "/proc/%d/comm", s->first_pid);
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && read(fd, name, sizeof name - 1) > 0 && streq(name, "acequia-box\n");
}

void launcher_image_watch(struct launcher *l, uint64_t id, uint32_t attempt) {
    vec_push(&l->images, (struct image_watch){.id = id, .attempt = attempt});
}

void launcher_connected(struct launcher *l) {
    for (uint32_t i = 0; i < l->images.len; i++)
        l->images.at[i].told = false;
}

// False when there is nothing more to watch.
static bool look(struct launcher *l, struct image_watch *w) {
    struct spool_status s = {0};
    enum agent_phase phase = agent_logic_phase(l->node->logic, w->id, w->attempt);
    if (phase != AGENT_LAUNCHING && phase != AGENT_RUNNING)
        return false;  // its end says more
    bool preparing = launcher_image_preparing(l, w->id, w->attempt, &s);
    if (!preparing && s.first_pid <= 0)
        return true;  // not started yet
    w->looks += preparing && w->looks < LOOKS_BEFORE_TOLD;
    struct message_image m = {
        .id = w->id, .attempt = w->attempt, .preparing = preparing, .since_ms = s.started_wall_ms};
    bool news = preparing ? !w->told && w->looks == LOOKS_BEFORE_TOLD : w->ever_told;
    if (news && l->node->open && agent_logic_welcomed(l->node->logic)) {
        agent_send(l->node, MESSAGE_IMAGE, &m);
        w->told = w->ever_told = true;
        return preparing;
    }
    return preparing || news;
}

void launcher_images_look(struct launcher *l) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < l->images.len; i++)
        if (look(l, &l->images.at[i]))
            l->images.at[kept++] = l->images.at[i];
    l->images.len = kept;
}
