#include "report_page.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Near the start of each page. */
#define MARK        "<!-- a report of fsdpck -->"
#define MARK_NBYTES ((size_t)128)

/* page/page.html around the report, from the build. */
extern const unsigned char report_page_head[], report_page_tail[];
extern const unsigned report_page_head_nbytes, report_page_tail_nbytes;

/* Nothing was added to it. */
static bool ends_as_page(const char *path)
{
    static const char end[] = "</html>\n";
    char last[sizeof end] = "";
    FILE *file = fopen(path, "rb");
    const bool is = file != NULL && fseek(file, -(long)(sizeof end - 1), SEEK_END) == 0 &&
                    fread(last, 1, sizeof end - 1, file) == sizeof end - 1 &&
                    strcmp(last, end) == 0;
    if (file != NULL)
        fclose(file);
    return is;
}

static bool is_page(const char *path)
{
    char head[MARK_NBYTES + 1];
    FILE *file = fopen(path, "rb");
    const size_t nbytes = file != NULL ? fread(head, 1, MARK_NBYTES, file) : 0;
    if (file != NULL)
        fclose(file);
    head[nbytes] = '\0';
    return strstr(head, MARK) != NULL && ends_as_page(path);
}

bool report_page_is_free(const char *path)
{
    struct stat st;
    return lstat(path, &st) != 0 || (S_ISREG(st.st_mode) && is_page(path));
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

void report_page_note(report_page *page, const char *text)
{
    const size_t nbytes = strlen(text) + 1;
    if (page->path == NULL)
        return;
    flockfile(stderr); /* any thread */
    char *notes = realloc(page->notes, page->notes_nbytes + nbytes);
    if (notes != NULL) {
        memcpy(notes + page->notes_nbytes, text, nbytes);
        page->notes = notes;
        page->notes_nbytes += nbytes;
    }
    funlockfile(stderr);
}

/* Returns errno. */
static int publish(report_page *page)
{
    fwrite(report_page_tail, 1, report_page_tail_nbytes, page->file);
    const bool lost = ferror(page->file) != 0;
    if (fclose(page->file) != 0 || lost)
        return errno != 0 ? errno : EIO;
    /* The command may have written something there. */
    if (!report_page_is_free(page->path))
        return EEXIST;
    return rename(page->temporary, page->path) == 0 ? 0 : errno;
}

static void print_failure(const report_page *page)
{
    char escaped[4200];
    fprintf(stderr,
            "fsdpck: '%s': the page was not written: %s\n  next:     give --html another file\n",
            fsdpck_escape(escaped, sizeof escaped, page->path, strlen(page->path)),
            strerror(page->failed));
}

static void print_name(const report_page *page)
{
    char escaped[4200];
    if (!page->quiet)
        printf("report: %s\n",
               fsdpck_escape(escaped, sizeof escaped, page->path, strlen(page->path)));
}

bool report_page_finish(report_page *page, bool is_whole)
{
    report_page_put(page, "", 0);
    if (page->failed == 0 && is_whole) {
        page->failed = publish(page);
    } else if (page->failed == 0) {
        fclose(page->file);
        page->failed = ENOMEM;
    }
    const bool done = page->failed == 0;
    if (done)
        print_name(page);
    else
        print_failure(page);
    if (!done && page->temporary != NULL)
        unlink(page->temporary);
    free(page->temporary);
    free(page->notes);
    *page = (report_page){0};
    return done;
}
