// One function a paper, or a part of one: prints its tables.
#pragma once

namespace ttrace::reproductions {

void v_abft_tightness();    // tables 4 to 7
void v_abft_detection();    // tables 8 and 9, section 6.4
void v_abft_sensitivity();  // no table of the paper: what the check sees at all
void dlrm();                // tables II and III
void attnchecker();         // table 1, section 5.2
void sdc_llm();             // appendix D

}  // namespace ttrace::reproductions
