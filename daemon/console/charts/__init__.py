"""Charts as SVG that is made here: pure functions from numbers to HTML, without a script or an inline style.

A chart is a `figure`: what it shows in words for those who do not see it, the drawing, and the numbers as a
table that unfolds. Colours come from the stylesheet by class, and never alone: lines differ in their dashes,
bars in the order in which they are stacked, states in their height. Labels are HTML beside the
drawing, which is stretched to the space that there is: so they stay readable on a phone.
"""
