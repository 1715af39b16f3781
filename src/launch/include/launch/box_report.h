// How acequia-box tells the shepherd why it could not become the job's program: "CODE text" on a
// descriptor that is open for it, a file in the attempt's folder that users cannot open.
#pragma once

enum { BOX_REPORT_FD = 3, BOX_REPORT_MAX = 512 };
