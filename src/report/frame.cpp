#include "frame.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bitcube/version.hpp"

namespace bitcube::report {
namespace {

// The colours of h0 to h8 are those of viridis, from pale to dark on a light page and the other way round on a dark
// one: lightness alone tells their order. Those of c0 to c7 have a contrast of 3:1 with the page, and each has a shape
// of its own; text has at least 4.5:1. tests/report/browser/check.mjs measures both.
constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark;--page:#fff;--panel:#fff;--soft:#f2f4f7;--text:#1a1f26;--muted:#505a66;--line:#d3d9e0;
--link:#0b57a4;--bar:#2f6db5;--outer:#b4480e;
--c0:#0b62a8;--c1:#b9480a;--c2:#0a7a57;--c3:#9a4a88;--c4:#866000;--c5:#22789c;--c6:#5b5f66;--c7:#8c2f39;
--h0:#fde725;--h1:#addc30;--h2:#5ec962;--h3:#28ae80;--h4:#21918c;--h5:#2c728e;--h6:#3b528b;--h7:#472d7b;--h8:#440154}
@media (prefers-color-scheme:dark){:root{--page:#12161b;--panel:#181d24;--soft:#1f262f;--text:#e6eaef;--muted:#a9b4c0;
--line:#39434f;--link:#7db8f5;--bar:#5b9be0;--outer:#f08a4b;
--c0:#6cb2f2;--c1:#f28a4a;--c2:#4cc79a;--c3:#dd8fcb;--c4:#dcb64a;--c5:#7fd3ee;--c6:#b4bac2;--c7:#f2858d;
--h0:#440154;--h1:#472d7b;--h2:#3b528b;--h3:#2c728e;--h4:#21918c;--h5:#28ae80;--h6:#5ec962;--h7:#addc30;--h8:#fde725}}
*{box-sizing:border-box}
html{scroll-padding-top:4rem}
body{margin:0;background:var(--page);color:var(--text);font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
a{color:var(--link)}
:focus-visible{outline:3px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-100vw;top:0;padding:.5rem 1rem;background:var(--page);z-index:2}
.skip:focus{left:0}
header,main,footer{padding:0 .75rem;max-width:92rem}
header{padding-top:1rem}
h1{font-size:1.6rem;line-height:1.25;margin:.5rem 0}
h2{font-size:1.3rem;line-height:1.3;margin:2.5rem 0 .5rem;padding-top:.75rem;border-top:2px solid var(--line)}
h3{font-size:1.05rem;margin:1.75rem 0 .25rem}
p{margin:.25rem 0 .75rem;max-width:46rem}
.made,.note{color:var(--muted)}
.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
.command code span{display:inline-block;max-width:100%}
summary{position:relative}
nav{position:sticky;top:0;z-index:1;background:var(--page);border-bottom:1px solid var(--line)}
nav ul{display:flex;gap:.25rem 1.25rem;margin:0;padding:.5rem .75rem;list-style:none;overflow-x:auto}
nav li{flex:none;max-width:16rem;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
nav a{display:inline-block;padding:.25rem 0}
dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.25rem 1rem;margin:.5rem 0}
dt{color:var(--muted)}
dd{margin:0}
code{font:.9em ui-monospace,monospace}
.warnings{border-left:4px solid var(--outer);padding:.25rem .75rem;background:var(--soft)}
.panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,20.8rem),1fr));gap:1rem;align-items:start}
@media (min-width:60rem) and (max-width:100rem){.even{grid-template-columns:repeat(2,minmax(0,1fr))}}
figure{margin:0;padding:.5rem;border:1px solid var(--line);border-radius:.4rem;background:var(--panel);min-width:0}
figcaption{margin-bottom:.4rem}
figcaption span{color:var(--muted);font-size:.9rem}
svg{display:block;width:100%;max-width:27rem;height:auto;margin:auto}
svg text{font:13px system-ui,sans-serif;fill:currentColor;font-variant-numeric:tabular-nums}
svg .name{fill:var(--muted)}
svg .over{font-weight:600}
.grid,.axis,.mark,.frame{fill:none;stroke:var(--line)}
.axis,.frame{stroke:var(--muted)}
.mark{stroke:var(--text);stroke-dasharray:3 3}
.bar{fill:var(--bar)}
.outer{fill:var(--outer)}
.track{fill:var(--soft)}
.none{fill:var(--soft)}
.dot{stroke:var(--panel);stroke-width:1.2;paint-order:stroke}
)"
                                    R"(.c0{fill:var(--c0)}.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}
.c4{fill:var(--c4)}.c5{fill:var(--c5)}.c6{fill:var(--c6)}.c7{fill:var(--c7)}
.h0{fill:var(--h0)}.h1{fill:var(--h1)}.h2{fill:var(--h2)}.h3{fill:var(--h3)}.h4{fill:var(--h4)}
.h5{fill:var(--h5)}.h6{fill:var(--h6)}.h7{fill:var(--h7)}.h8{fill:var(--h8)}
details{margin-top:.5rem}
summary{cursor:pointer;padding:.25rem 0;font-size:.9rem}
.scroll{overflow:auto;max-height:26rem;border:1px solid var(--line);background:var(--panel);width:fit-content;max-width:100%}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;overflow-wrap:normal}
caption{text-align:left;padding:.25rem .6rem;color:var(--muted)}
th,td{padding:.2rem .6rem;text-align:left;vertical-align:top;white-space:nowrap;border-bottom:1px solid var(--line)}
thead th{position:sticky;top:0;background:var(--soft)}
tbody th{position:sticky;left:0;background:var(--panel)}
th bdi{display:block;width:max-content;max-width:min(24rem,36vw);white-space:normal;overflow-wrap:anywhere}
figure th bdi{max-width:min(9rem,36vw)}
th{font-weight:600}
.n{text-align:right}
footer{margin:3rem 0 1rem;color:var(--muted)}
@media (min-width:72rem){
.frame-of-page{display:grid;grid-template-columns:12.5rem minmax(0,1fr)}
html{scroll-padding-top:1rem}
nav{border-bottom:0;border-right:1px solid var(--line);align-self:start;max-height:100vh;overflow-y:auto;margin-top:2rem}
nav ul{flex-direction:column;overflow:visible}
nav li{max-width:none;white-space:normal}
header,main,footer{padding-left:1.5rem}
}
@media (forced-colors:active){svg{forced-color-adjust:none;background:var(--panel);color:var(--text)}}
@media print{
nav,.skip{display:none}
figure,tr{break-inside:avoid}
h2,h3{break-after:avoid}
.scroll{max-height:none;overflow:visible}
.frame-of-page{display:block}
}
)";

}  // namespace

void Page::section(std::string_view id, std::string_view title, std::string_view entry) {
  contents_.push_back({std::string(id), std::string(entry.empty() ? title : entry), std::string(title)});
  body_.open("section", {{"aria-labelledby", std::string(id)}});
  body_.open("h2", {{"id", std::string(id)}}).element("bdi", title).close();
}

void Page::begin_panels(std::string_view title, std::string_view text, std::size_t panels) {
  if (!title.empty()) body_.element("h3", title);
  if (!text.empty()) body_.element("p", {{"class", "note"}}, text);
  // Four stand better two by two than three and one.
  body_.open("div", {{"class", panels % 4 == 0 ? "panels even" : "panels"}});
}

void Page::command(std::string_view label, std::string_view command) {
  body_.open("p", {{"class", "command"}}).text(label).open("code");
  while (!command.empty()) {
    const std::size_t end = std::min(command.find(' '), command.size());
    body_.element("span", command.substr(0, end));
    command.remove_prefix(std::min(end + 1, command.size()));
    if (!command.empty()) body_.text(" ");
  }
  body_.close().close();
}

void Page::facts(std::span<const Fact> facts) {
  body_.open("dl");
  for (const Fact& fact : facts) {
    body_.element("dt", fact.name);
    body_.open("dd").element("bdi", fact.value);
    if (!fact.remark.empty()) body_.text(" ").element("span", {{"class", "note"}}, fact.remark);
    body_.close();
  }
  body_.close();
}

std::string Page::finish(const PageHead& head) && {
  Markup out;
  out.raw("<!DOCTYPE html>");
  out.open("html", {{"xmlns", "http://www.w3.org/1999/xhtml"}, {"lang", "en"}});
  out.open("head");
  out.empty("meta", {{"charset", "utf-8"}});
  out.empty("meta",
            {{"http-equiv", "Content-Security-Policy"},
             {"content", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"}});
  out.empty("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}});
  out.empty("meta", {{"name", "color-scheme"}, {"content", "light dark"}});
  out.empty("meta", {{"name", "generator"}, {"content", fmt::format("bitcube {}", version)}});
  out.element("title", head.title);
  out.open("style").raw(kStyle).close();
  out.close();
  out.open("body");
  out.element("a", {{"class", "skip"}, {"href", "#content"}}, "Skip to the report");
  out.open("div", {{"class", "frame-of-page"}});
  out.open("nav", {{"aria-label", "Contents"}}).open("ul");
  for (const Entry& entry : contents_) {
    out.open("li");
    if (entry.text == entry.title) {
      out.open("a", {{"href", "#" + entry.id}});
    } else {
      out.open("a", {{"href", "#" + entry.id}, {"title", entry.title}});
    }
    out.element("bdi", shorten_text(entry.text, 60)).close().close();
  }
  out.close().close();
  out.open("div");
  out.open("header").open("h1").element("bdi", head.title).close();
  out.open("p", {{"class", "made"}}).text(fmt::format("bitcube {}", version));
  if (!head.date.empty()) out.text(", " + head.date);
  out.close().close();
  out.open("main", {{"id", "content"}, {"tabindex", "-1"}});
  out.raw(std::move(body_).take());
  out.close();
  out.open("footer")
      .element("p", "Every figure has its numbers in a table below it. Nothing in this file is loaded from elsewhere.")
      .close();
  out.close().close();
  out.close().close();
  out.raw("\n");
  return std::move(out).take();
}

}  // namespace bitcube::report
