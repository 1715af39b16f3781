// What sacct and sstat can print, with Slurm's names and widths.
#pragma once
#include "step_row.h"

#define ACCT_DEFAULT "jobid,jobname,partition,account,alloccpus,state,exitcode"
#define ACCT_LONG                                                                                            \
    "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,"    \
    "maxrsstask,averss,"                                                                                     \
    "maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,mincputask,avecpu,ntasks,alloccpus,"      \
    "elapsed,state,"                                                                                         \
    "exitcode,avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,maxdiskread,"       \
    "maxdiskreadnode,"                                                                                       \
    "maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,reqtres,alloctres,"     \
    "tresusageinave,"                                                                                        \
    "tresusageinmax,tresusageinmaxnode,tresusageinmaxtask,tresusageinmin,tresusageinminnode,"                \
    "tresusageinmintask,"                                                                                    \
    "tresusageintot,tresusageoutmax,tresusageoutmaxnode,tresusageoutmaxtask,tresusageoutave,tresusageouttot"

struct acct_row {
    const struct sjob *job;
    const struct sstep *step;  // NULL: the job
};

struct acct_column;
struct acct_use {
    const struct acct_column *column;
    int width;   // 0: the column's own
    bool left;
};

struct acct_format {
    VEC(struct acct_use) at;
    int parsable;           // 1: a delimiter at the end, too
    const char *delimiter, *units;
    bool plain_numbers;
    const char *cluster;  // its name, when it is shown
    struct uid_cache {  // the user asked for last: lists name the same ones again and again
        char name[256];  // of its own: rows do not outlive their turn
        long uid;
    } *uids;
};

int sacct_columns(struct slurm *s, const char *format, struct acct_format *f);  // refuses unknown names
const char *sacct_fields(struct arena *a, const struct acct_format *f, bool steps);
void sacct_heading(const struct acct_format *f, struct buf *out);
void sacct_put(const struct acct_format *f, const struct acct_row *row, struct buf *out);
void sacct_columns_done(struct acct_format *f);
int sacct_help(void);  // the names
