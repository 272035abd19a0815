/* report_html_style.c - the report page's style sheet, and how sizes and axes are written on it. */
#include "rnn/programs/report_html.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/base/svg.h"

/* All text has a contrast of at least 4.5 with its background. Boxes have one of at least 3: on a
 * light page by their rims, on a dark page by their colours. */
static const char page_style[] =
    ":root{color-scheme:light dark;--bg:#fff;--ink:#1b1f24;--soft:#57606a;--line:#dde2e8;"
    "--edge:#4b5563;--rim:#4b5563;--main:#1f5f99;--pale:#7ea9d1;--other:#a3470e;--band:#f2f5f8}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#14171b;--ink:#e7eaed;--soft:#a5aeb8;"
    "--line:#2c333b;--edge:#a5aeb8;--rim:#14171b;--main:#7fb4ea;--pale:#4f7fae;--other:#eda36d;"
    "--band:#1d2228}}\n"
    "*{box-sizing:border-box}"
    "body{margin:0 auto;max-width:60rem;padding:2rem 1.25rem 3rem;background:var(--bg);"
    "color:var(--ink);font:1rem/1.55 system-ui,sans-serif}\n"
    "h1{font-size:1.75rem;line-height:1.2;margin:0 0 .35rem}"
    "h2{font-size:1.25rem;line-height:1.3;margin:3.25rem 0 .35rem}"
    "p{margin:.35rem 0;max-width:44rem;color:var(--soft)}\n"
    ".figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));"
    "gap:1.25rem 1rem;margin:1.75rem 0 0}"
    ".figures div{border-left:3px solid var(--main);padding-left:.75rem;display:flex;"
    "flex-direction:column-reverse;justify-content:flex-end}"
    ".figures dd{margin:0;font-size:1.6rem;font-weight:650;line-height:1.25}"
    ".figures dt{color:var(--soft);font-size:.875rem;line-height:1.35}"
    "dd,td,.y,.x{font-variant-numeric:tabular-nums}\n"
    "table{border-collapse:collapse;width:100%;margin:.75rem 0;font-size:.9375rem}"
    "th,td{text-align:right;vertical-align:baseline;padding:.45rem .6rem;"
    "border-bottom:1px solid var(--line)}"
    "thead th{color:var(--soft);font-size:.8125rem;font-weight:600;line-height:1.3;"
    "border-color:var(--edge)}th:first-child{text-align:left;padding-left:.35rem}"
    "th[scope=row]{font-weight:400}.sum>*{font-weight:650}"
    ".calls div{display:inline-grid;grid-template-columns:repeat(6,auto);gap:0 .6rem}"
    "small{display:block;color:var(--soft);font-size:.8125rem;white-space:nowrap}"
    ".ours{background:var(--band)}.ours th,.ours .calls{font-weight:650}"
    "details{margin-top:.75rem}summary{cursor:pointer;color:var(--main)}\n"
    ".facts{display:grid;grid-template-columns:max-content 1fr;gap:.3rem 1.25rem;"
    "font-size:.9375rem}.facts div{display:contents}.facts dt{color:var(--soft)}"
    ".facts dd{margin:0;overflow-wrap:anywhere}\n"
    "footer{margin-top:3rem;border-top:1px solid var(--line);padding-top:.5rem;"
    "font-size:.875rem}:focus-visible{outline:3px solid var(--main);outline-offset:2px}\n";

static const char picture_style[] =
    ".chart{padding-left:3rem;margin:1rem 0 .25rem}.unit{margin-left:-3rem;margin-bottom:.35rem}"
    ".unit,.x,.y,.phases{color:var(--soft);font-size:.8125rem;line-height:1.4}"
    ".plot{position:relative;height:15rem;border-left:1px solid var(--edge);"
    "border-bottom:1px solid var(--edge)}"
    ".plot svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}"
    ".y span{position:absolute;right:100%;transform:translateY(50%);padding-right:.5rem;"
    "white-space:nowrap}"
    ".x{position:relative;height:2.9rem;text-align:center;padding-top:1.5rem}"
    ".x span{position:absolute;top:.25rem;transform:translateX(-50%)}\n"
    "polyline,path{fill:none;vector-effect:non-scaling-stroke}path{stroke:var(--line)}"
    "polygon{fill:var(--main);opacity:.14}.raw{stroke:var(--pale)}"
    ".main{stroke:var(--main);stroke-width:2}"
    ".second{stroke:var(--other);stroke-width:2;stroke-dasharray:7 4}"
    ".test{stroke:var(--ink);stroke-width:2;stroke-dasharray:2 4}\n"
    ".keys{list-style:none;display:flex;flex-wrap:wrap;gap:.3rem 1.25rem;margin:.25rem 0;padding:0;"
    "font-size:.875rem}.keys svg{width:1.75rem;height:.6rem;margin-right:.45rem}"
    ".key{display:inline-block;width:.85rem;height:.85rem;margin-right:.45rem;"
    "vertical-align:-.08rem;border:1px solid var(--rim);border-radius:2px}\n"
    ".step{height:26rem}.backward{position:absolute;top:0;bottom:0;right:0;"
    "background:var(--band);border-left:1px dashed var(--edge)}"
    ".box{position:absolute;border:1px solid var(--rim);min-height:3px;min-width:2px;"
    "overflow:hidden;white-space:nowrap;text-overflow:ellipsis;font-size:.75rem;line-height:1.2;"
    "padding:.05rem .3rem 0}"
    ".box:hover,.box:focus{outline:3px solid var(--ink);outline-offset:0;z-index:1}"
    ".box:hover::after,.box:focus::after{content:attr(aria-label);position:fixed;left:1rem;"
    "right:1rem;bottom:1rem;max-width:40rem;margin:auto;padding:.65rem .9rem;border-radius:6px;"
    "background:var(--ink);color:var(--bg);font-size:.9375rem;white-space:normal;z-index:2}"
    ".phases{display:flex;padding:.25rem 0 .5rem}.phases span{padding-left:.3rem}\n"
    "@media(max-width:40rem){body{padding:1.25rem 1rem 3rem}"
    ".figures{grid-template-columns:1fr 1fr}.figures div:first-child{grid-column:1/-1}"
    ".chart{padding-left:2.5rem}.unit{margin-left:-2.5rem}.plot{height:12rem}.step{height:24rem}"
    ".y span{padding-right:.35rem}th,td{padding:.4rem .25rem}table{font-size:.8125rem}"
    ".facts{gap:.3rem .75rem}.calls div{grid-template-columns:repeat(3,auto)}"
    "small{white-space:normal;font-size:.75rem}#buffers{font-size:.8125rem}#buffers "
    ":is(th,td){padding:.3rem .2rem;"
    "overflow-wrap:anywhere}}\n";

/* The colours of svg.h for a dark page: those that are too dark for it are lighter. */
static const char *const night[ASHLAR_SVG_COLOURS] = {"#4a90d0", "#f0a830", "#38a08c", "#d9655a",
                                                      "#b79ae0", "#86a653", "#6fc3ee", "#9a9aa6"};

void ashlar__html_put(ashlar_file_buffer *file, const char *text) {
    ashlar__file_buffer_put(file, text, strlen(text));
}

/* Relative luminance as in WCAG, of "#rrggbb". */
static double luminance(const char *colour) {
    static const double weights[] = {0.0722, 0.7152, 0.2126}; /* blue, green, red */
    const unsigned long rgb = strtoul(colour + 1, NULL, 16);
    double sum = 0;
    for (unsigned i = 0; i < 3; i++) {
        const double c = (double)(rgb >> 8 * i & 0xff) / 255;
        sum += weights[i] * (c <= 0.04045 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4));
    }
    return sum;
}

static void put_colours(ashlar_file_buffer *file, const char *const *colours) {
    for (int tag = 0; tag < ASHLAR_TAG_COUNT; tag++) {
        const char *colour = colours[tag % ASHLAR_SVG_COLOURS];
        /* white gives the same contrast as black at a luminance of 0.179 */
        ashlar__file_buffer_print(file, ".t%d{background:%s;color:%s}", tag, colour,
                                  luminance(colour) < 0.179 ? "#fff" : "#000");
    }
}

void ashlar__html_put_style(ashlar_file_buffer *file) {
    ashlar__html_put(file, page_style);
    ashlar__html_put(file, picture_style);
    put_colours(file, ashlar__svg_colours);
    ashlar__html_put(file, "\n@media(prefers-color-scheme:dark){");
    put_colours(file, night);
    ashlar__html_put(file, "}\n");
}

/* ---- sizes ---- */

double ashlar__html_unit(uint64_t bytes, const char **name) {
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double unit = 1;
    size_t i = 0;
    while ((double)bytes >= 1024 * unit && i + 1 < sizeof names / sizeof names[0]) {
        unit *= 1024;
        i++;
    }
    *name = names[i];
    return unit;
}

void ashlar__html_put_bytes(ashlar_file_buffer *file, uint64_t bytes) {
    const char *name;
    const double unit = ashlar__html_unit(bytes, &name), value = (double)bytes / unit;
    const int digits = unit <= 1 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
    ashlar__file_buffer_print(file, "%.*f&nbsp;%s", digits, value, name);
}

const char *ashlar__html_tag_name(ashlar_tag tag) {
    return tag == ASHLAR_TAG_SAVED     ? "saved for backward"
           : tag == ASHLAR_TAG_MOMENTS ? "moments of the optimizer"
                                       : ashlar_tag_name(tag);
}

/* ---- axes ---- */

double ashlar__html_tick(double range, int parts) {
    const double raw = range / parts, power = pow(10, floor(log10(raw)));
    return power * (raw >= 5 * power ? 5 : raw >= 2 * power ? 2 : 1);
}

void ashlar__html_put_y_axis(ashlar_file_buffer *file, double y0, double y1) {
    const double tick = ashlar__html_tick(y1 - y0, 4);
    ashlar__html_put(file, "<div class=y aria-hidden=true>");
    for (double i = ceil(y0 / tick); i * tick <= y1; i++) {
        ashlar__file_buffer_print(file, "<span style=\"bottom:%.2f%%\">%.6g</span>",
                                  100 * (i * tick - y0) / (y1 - y0), i * tick);
    }
    ashlar__html_put(file, "</div>");
}

void ashlar__html_put_x_axis(ashlar_file_buffer *file, double x0, double x1, const char *what) {
    const double tick = fmax(1, ashlar__html_tick(x1 - x0, 3));
    ashlar__file_buffer_print(file, "<div class=x aria-hidden=true>%s", what);
    for (double i = ceil(x0 / tick); i * tick <= x1; i++) {
        ashlar__file_buffer_print(file, "<span style=\"left:%.2f%%\">%.7g</span>",
                                  100 * (i * tick - x0) / (x1 - x0), i * tick);
    }
    ashlar__html_put(file, "</div>");
}
