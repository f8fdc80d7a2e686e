#include "report_page.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "opt.h"

/* Near the start of each page. */
#define MARK        "<!-- a report of fsdpck -->"
#define MARK_NBYTES ((size_t)128)

/* report_page.html around the report, from the build. */
extern const unsigned char report_page_head[], report_page_tail[];
extern const unsigned report_page_head_nbytes, report_page_tail_nbytes;

static int fail(const char *path, fsdpck_status code, const char *what, const char *next)
{
    char escaped[4200];
    fprintf(stderr, "fsdpck: '%s': %s\n  next:     %s\n",
            fsdpck_escape(escaped, sizeof escaped, path, strlen(path)), what, next);
    return (int)code;
}

static bool is_page(const char *path)
{
    char head[MARK_NBYTES + 1];
    FILE *file = fopen(path, "rb");
    const size_t nbytes = file != NULL ? fread(head, 1, MARK_NBYTES, file) : 0;
    if (file != NULL)
        fclose(file);
    head[nbytes] = '\0';
    return strstr(head, MARK) != NULL;
}

/* Whether nothing else is at this path. */
static bool is_free(const char *path)
{
    struct stat st;
    return stat(path, &st) != 0 || (S_ISREG(st.st_mode) && is_page(path));
}

/* Before work that can take long. */
static bool is_in_writable_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        return access(".", W_OK) == 0;
    char *folder = strndup(path, (size_t)(slash - path) + 1);
    const bool can = folder != NULL && access(folder, W_OK) == 0;
    free(folder);
    return can;
}

int report_page_start(cli *c, const char *path)
{
    if (path == NULL)
        return -1;
    if (c->json)
        return opt_usage_error_next(c, "omit one of them",
                                    "--html and --json contradict each other");
    c->json = true;
    if (fsdpck_context_rank(c->ctx) != 0)
        return -1;
    if (path[0] == '\0' || strcmp(path, "-") == 0)
        return fail(path, FSDPCK_USAGE, "is not a name for a page",
                    "give a name: --html report.html");
    if (!is_free(path))
        return fail(path, FSDPCK_USAGE, "exists and is not a page of fsdpck: it is not replaced",
                    "give --html another name, or remove the file");
    if (!is_in_writable_folder(path))
        return fail(path, FSDPCK_IO, strerror(errno),
                    "give --html a file in a folder that can be written");
    *c->page = (report_page){.path = path, .quiet = c->quiet};
    return -1;
}

static int create(report_page *page)
{
    static const char suffix[] = ".XXXXXX";
    const size_t nbytes = strlen(page->path) + sizeof suffix;
    page->temporary = malloc(nbytes);
    if (page->temporary == NULL)
        return ENOMEM;
    snprintf(page->temporary, nbytes, "%s%s", page->path, suffix);
    const int fd = mkstemp(page->temporary);
    if (fd < 0)
        return errno;
    const mode_t mask = umask(0);
    umask(mask);
    (void)fchmod(fd, 0666 & ~mask);
    page->file = fdopen(fd, "wb");
    if (page->file == NULL) {
        close(fd);
        return ENOMEM;
    }
    fwrite(report_page_head, 1, report_page_head_nbytes, page->file);
    return 0;
}

void report_page_put(report_page *page, const char *json, size_t nbytes)
{
    if (page->file == NULL && page->failed == 0)
        page->failed = create(page);
    if (page->failed != 0)
        return;
    /* In JSON, only texts have this character. In a page, it could end the script. */
    for (const char *end = json + nbytes; json < end;) {
        const char *found = memchr(json, '<', (size_t)(end - json));
        const char *stop = found != NULL ? found : end;
        fwrite(json, 1, (size_t)(stop - json), page->file);
        if (found != NULL)
            fputs("\\u003c", page->file);
        json = stop + (found != NULL);
    }
}

/* Returns errno. */
static int publish(report_page *page)
{
    fwrite(report_page_tail, 1, report_page_tail_nbytes, page->file);
    const bool lost = ferror(page->file) != 0;
    if (fclose(page->file) != 0 || lost)
        return errno != 0 ? errno : EIO;
    /* The command may have written something there. */
    if (!is_free(page->path))
        return EEXIST;
    return rename(page->temporary, page->path) == 0 ? 0 : errno;
}

static void tell(const report_page *page)
{
    char escaped[4200];
    if (!page->quiet)
        printf("report: %s\n",
               fsdpck_escape(escaped, sizeof escaped, page->path, strlen(page->path)));
}

bool report_page_finish(report_page *page)
{
    report_page_put(page, "", 0);
    if (page->failed == 0)
        page->failed = publish(page);
    const bool done = page->failed == 0;
    if (done)
        tell(page);
    else
        fail(page->path, FSDPCK_IO, strerror(page->failed),
             "the page was not written: give --html another file");
    if (!done && page->temporary != NULL)
        unlink(page->temporary);
    free(page->temporary);
    *page = (report_page){0};
    return done;
}
