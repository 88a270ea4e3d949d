"""System calls by name, with their numbers on x86-64 and arm64, as in the kernel's headers."""

MACHINES = ("x86_64", "aarch64")
ARCHITECTURES = (0xC000003E, 0xC00000B7)
"""AUDIT_ARCH_X86_64 and AUDIT_ARCH_AARCH64."""

ORDINARY = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "openat": (257, 56), "newfstatat": (262, 79),
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214), "futex": (202, 98),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "execve": (59, 221),
    "exit": (60, 93), "exit_group": (231, 94), "wait4": (61, 260), "kill": (62, 129), "getpid": (39, 172),
    "setsid": (112, 157), "prctl": (157, 167), "seccomp": (317, 277), "prlimit64": (302, 261),
    "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "accept4": (288, 242), "sendto": (44, 206),
    "recvfrom": (45, 207), "sendmsg": (46, 211), "recvmsg": (47, 212), "setsockopt": (54, 208),
    "epoll_create1": (291, 20), "epoll_pwait": (281, 22), "eventfd2": (290, 19), "pipe2": (293, 59),
    "inotify_init1": (294, 26), "memfd_create": (319, 279), "getrandom": (318, 278), "statx": (332, 291),
    "renameat2": (316, 276), "linkat": (265, 37), "unlinkat": (263, 35), "fchmodat": (268, 53),
    "flock": (73, 32), "clock_gettime": (228, 113), "clock_nanosleep": (230, 115), "times": (100, 153),
    "sched_setaffinity": (203, 122), "mbind": (237, 235), "membarrier": (324, 283), "rseq": (334, 293),
    "pidfd_send_signal": (424, 424), "pidfd_open": (434, 434), "openat2": (437, 437), "close_range": (436, 436),
    "faccessat2": (439, 439), "epoll_pwait2": (441, 441), "landlock_create_ruleset": (444, 444),
    "futex_waitv": (449, 449), "fchmodat2": (452, 452), "file_setattr": (469, 469),
}  # fmt: skip
"""Calls that servers, their runtimes, package managers and browsers need."""

REFUSED = {
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "move_mount": (429, 429), "open_tree": (428, 428), "open_tree_attr": (467, 467), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "unshare": (272, 97), "setns": (308, 268), "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
    "swapon": (167, 224), "swapoff": (168, 225), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "acct": (163, 89), "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438), "kcmp": (312, 272), "perf_event_open": (298, 241), "bpf": (321, 280),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "reboot": (169, 142), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "sethostname": (170, 161), "setdomainname": (171, 162), "syslog": (103, 116), "vhangup": (153, 58),
    "lookup_dcookie": (212, 18), "lsm_set_self_attr": (460, 460),
}  # fmt: skip
"""Calls that are refused whatever their arguments."""

ONLY_X86 = {"iopl": 172, "ioperm": 173, "modify_ldt": 154}
CLONE, IOCTL, SOCKET, SOCKETPAIR = (56, 220), (16, 29), (41, 198), (53, 199)
PERSONALITY, CLONE3 = (135, 92), (435, 435)
