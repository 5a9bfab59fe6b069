// The parts of ECharts that the report draws with.
import { init, use } from 'echarts/core';
import { LineChart, ScatterChart } from 'echarts/charts';
import { GridComponent, LegendComponent, TooltipComponent } from 'echarts/components';
import { SVGRenderer } from 'echarts/renderers';

use([LineChart, ScatterChart, GridComponent, LegendComponent, TooltipComponent, SVGRenderer]);
export { init };
