#include "serve/page.h"

#include "serve/page.inc"

namespace lockstep::serve {

const PageFile kPage = {"text/html; charset=utf-8", kPageHtml};
const PageFile kPageStyle = {"text/css; charset=utf-8", kPageCss};
const PageFile kPageScript = {"text/javascript; charset=utf-8", kPageJs};

}  // namespace lockstep::serve
